// What DeviceMemory::allocate gave and release has not taken back. Owned by it, which guards the
// table; make() and free() ask the driver, which may wait for streams, and need no lock.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "base/result.h"
#include "cuda/memory/cleanup_report.h"
#include "cuda/memory/device.h"
#include "cuda/memory/window.h"

namespace unisono::cuda {

class OwnMemory {
 public:
  struct Allocation {
    CUdeviceptr base = 0;
    std::unique_ptr<Window> window;  ///< null: plain device memory
  };

  explicit OwnMemory(const Device& device) : device_(device) {}

  Result<Allocation> make(std::size_t bytes) const;
  Status free(Allocation allocation) const;
  void add(Allocation allocation) { allocations_[allocation.base] = std::move(allocation.window); }
  bool contains_base(CUdeviceptr base) const { return allocations_.count(base) != 0; }
  /// Out of the table, of a base that it contains.
  Allocation take(CUdeviceptr base) {
    return {base, std::move(allocations_.extract(base).mapped())};
  }
  /// The window around `address`; null where it lies in none.
  const Window* window_at(CUdeviceptr address) const;
  void close(CleanupReport& report);

 private:
  Result<Allocation> make_plain(std::size_t bytes) const;

  const Device& device_;
  std::map<CUdeviceptr, std::unique_ptr<Window>> allocations_;
};

}  // namespace unisono::cuda
