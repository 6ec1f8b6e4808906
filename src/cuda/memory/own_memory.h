// What DeviceMemory::allocate gave and release has not taken back. Owned and guarded by it.
#pragma once

#include <map>
#include <memory>

#include "base/result.h"
#include "cuda/memory/cleanup_report.h"
#include "cuda/memory/device.h"
#include "cuda/memory/window.h"

namespace unisono::cuda {

class OwnMemory {
 public:
  explicit OwnMemory(const Device& device) : device_(device) {}

  Result<CUdeviceptr> allocate(std::size_t bytes);
  bool contains_base(CUdeviceptr base) const { return allocations_.count(base) != 0; }
  /// Of a base that it contains.
  Status release(CUdeviceptr base);
  /// The window around `address`; null where it lies in none.
  const Window* window_at(CUdeviceptr address) const;
  void close(CleanupReport& report);

 private:
  /// Null: plain device memory.
  using Allocation = std::unique_ptr<Window>;
  Result<CUdeviceptr> allocate_plain(std::size_t bytes);

  const Device& device_;
  std::map<CUdeviceptr, Allocation> allocations_;
};

}  // namespace unisono::cuda
