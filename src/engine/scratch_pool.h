// Bounded staging memory of one rank: blocks are kept for the next operation instead of going back
// to the system, where their first touch would cost more than the work done in them.
// Thread rule: the engine's lock.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/result.h"

namespace unisono {

class ScratchPool {
 public:
  explicit ScratchPool(std::size_t bytes_max) : bytes_max_(bytes_max) {}

  class Block {
   public:
    Block() = default;
    Block(Block&& other) noexcept { *this = std::move(other); }
    Block& operator=(Block&& other) noexcept;
    ~Block();
    std::byte* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }

   private:
    friend class ScratchPool;
    ScratchPool* pool_ = nullptr;
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
  };

  /// 64-byte aligned. kOutOfResources names the bound and UNISONO_SCRATCH_BYTES.
  Result<Block> take(std::size_t bytes);
  /// Bytes of the blocks that have not come back.
  std::size_t lent() const;

 private:
  struct Freed {
    std::byte* data;
    std::size_t bytes;
  };
  struct FreedList : std::vector<Freed> {
    ~FreedList();
  };
  bool take_kept(std::size_t size, Block* block);
  void give_back(std::byte* data, std::size_t bytes);
  void free_last();
  std::size_t room() const;  // what may still be allocated
  Status too_little(std::size_t bytes) const;

  std::size_t bytes_max_;
  std::size_t in_use_ = 0;  // lent and kept together
  std::size_t blocks_ = 0;  // of these
  FreedList free_;
};

}  // namespace unisono
