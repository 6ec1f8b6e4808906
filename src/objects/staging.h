// Memory for the pieces on their way: taken for one call, back with the system when it ends, so
// that a large call leaves nothing behind in the allocator.
// Thread rule: one owner.
#pragma once

#include <cstddef>
#include <span>

namespace unisono::objects {

class Staging {
 public:
  Staging() = default;
  /// Throws std::bad_alloc.
  explicit Staging(std::size_t bytes);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  std::byte* data() { return data_; }
  std::span<std::byte> part(std::size_t offset, std::size_t bytes) {
    return {data_ + offset, bytes};
  }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace unisono::objects
