// What allocate() gives a rank that shares memory with no other one.
//
// Thread rule: any thread; one lock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"

namespace unisono {

class PlainMemory {
 public:
  PlainMemory() = default;
  /// Frees what was not released.
  ~PlainMemory() {
    for (void* pointer : allocated_) std::free(pointer);
  }
  PlainMemory(const PlainMemory&) = delete;
  PlainMemory& operator=(const PlainMemory&) = delete;

  /// 64-byte aligned.
  Result<void*> allocate(std::size_t bytes) {
    void* const pointer = std::aligned_alloc(64, (std::max<std::size_t>(bytes, 1) + 63) / 64 * 64);
    if (pointer == nullptr) {
      return Status(ErrorCode::kOutOfResources,
                    "no memory for " + std::to_string(bytes) + " bytes");
    }
    const std::lock_guard guard(mutex_);
    allocated_.push_back(pointer);
    return pointer;
  }

  /// kInvalidArgument for what allocate() has not given.
  Status release(void* pointer) {
    const std::lock_guard guard(mutex_);
    if (std::erase(allocated_, pointer) == 0) {
      return Status(ErrorCode::kInvalidArgument, "the pointer is not from unisono::allocate");
    }
    std::free(pointer);
    return Status();
  }

 private:
  std::mutex mutex_;
  std::vector<void*> allocated_;
};

}  // namespace unisono
