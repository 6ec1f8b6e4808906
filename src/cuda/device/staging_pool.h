// Page-locked host memory through which calls of one rank are staged.
//
// A driver may wait for all streams before it page-locks memory, and one of them may be waiting for
// a call of this rank: a thread of its own asks for each block, so that whoever wants it goes on
// with its other calls. Where a stream waits for the very call that wants the block, it gets
// ordinary memory instead. To free a block the driver waits for all streams too: page-locked ones
// are kept, in powers of two, until the pool is closed.
//
// Thread rule: the engine's lock of its rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cuda/driver/cuda_api.h"

namespace unisono::device {

class StagingPool {
 public:
  /// Messages name `device`. Blocks that are lent and count come to at most `bytes_max`.
  StagingPool(std::shared_ptr<const cuda::CudaApi> api, CUcontext context, std::string device,
              std::size_t bytes_max);
  /// The context is current, and all blocks are back or abandoned.
  ~StagingPool();
  StagingPool(const StagingPool&) = delete;

  /// Lent to whoever has it; what is released comes back.
  class Block {
   public:
    Block() = default;
    Block(Block&& other) noexcept { *this = std::move(other); }
    Block& operator=(Block&& other) noexcept;
    ~Block() { release(); }
    std::byte* data() const { return data_; }
    void release();
    /// A stream may still use it: it is nobody's again.
    void abandon();

   private:
    friend class StagingPool;
    StagingPool* pool_ = nullptr;
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
    std::size_t charged_ = 0;  // against the bound
    bool is_page_locked_ = true;
  };

  enum class Bound : std::uint8_t { kHolds, kMayExceed };
  /// Whether the bound leaves room for two blocks at once, or one (0). kOutOfResources names the
  /// bound and its variable.
  Status can_hold(std::size_t bytes, std::size_t other_bytes) const;
  /// What whoever wants a block gets while it is being page-locked. The driver copies to and from
  /// ordinary memory too, more slowly and while its caller waits.
  enum class Meanwhile : std::uint8_t { kNothing, kOrdinaryMemory };
  /// Nothing where there is none now: what is lent has to come back, or memory is being
  /// page-locked. Errors: what the driver says of a block of this size, and kOutOfResources where
  /// no thread can be made that asks it.
  Result<std::optional<Block>> take(std::size_t bytes, Bound bound,
                                    Meanwhile meanwhile = Meanwhile::kNothing);

 private:
  struct Free {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };
  struct Order {
    std::size_t bytes = 0;
    std::future<Result<std::byte*>> memory;
    Status refusal{};  // kept for whoever wants as much, until another size is ordered
  };

  std::vector<Free>::iterator find_free(std::size_t wanted);
  Block lend(Free block, std::size_t charged);
  Status collect(std::size_t wanted);
  Status order(std::size_t bytes);

  std::shared_ptr<const cuda::CudaApi> api_;
  CUcontext context_;
  std::string device_;
  std::size_t bytes_max_;
  std::vector<Free> free_;
  std::optional<Order> order_;  // one at a time
  std::size_t bytes_ = 0;       // lent and free
  std::size_t charged_bytes_ = 0;
};

}  // namespace unisono::device
