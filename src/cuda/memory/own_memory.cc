#include "cuda/memory/own_memory.h"

#include <fmt/format.h>

#include "base/log.h"
#include "cuda/driver/driver_section.h"

namespace unisono::cuda {

Result<OwnMemory::Allocation> OwnMemory::make(std::size_t bytes) const {
  if (bytes == 0) {
    return Status(ErrorCode::kInvalidArgument, "allocating 0 bytes on " + device_.name);
  }
  const DriverSection section(*device_.api, device_.context);
  UNISONO_TRY(section.status());
  if (!device_.windows_missing.empty()) return make_plain(bytes);
  auto window = Window::make(*device_.api, device_.handle, device_.name, bytes);
  if (!window) {
    if (window.error().code() == ErrorCode::kOutOfResources) return window.error();
    log::debug("CUDA: plain memory instead of a window: " + window.error().message());
    return make_plain(bytes);
  }
  const CUdeviceptr base = (*window)->address();
  return Allocation{base, std::move(*window)};
}

Result<OwnMemory::Allocation> OwnMemory::make_plain(std::size_t bytes) const {
  CUdeviceptr base = 0;
  UNISONO_TRY(device_.api->check(device_.api->MemAlloc(&base, bytes),
                                 fmt::format("allocating {} bytes on {}", bytes, device_.name)));
  return Allocation{base, nullptr};
}

// A window reports what goes wrong itself.
Status OwnMemory::free(Allocation allocation) const {
  const DriverSection section(*device_.api, device_.context);
  UNISONO_TRY(section.status());
  if (allocation.window != nullptr) {
    allocation.window.reset();
    return Status();
  }
  return device_.api->check(device_.api->MemFree(allocation.base),
                            "freeing memory of " + device_.name);
}

const Window* OwnMemory::window_at(CUdeviceptr address) const {
  auto after = allocations_.upper_bound(address);
  if (after == allocations_.begin()) return nullptr;
  const Window* window = std::prev(after)->second.get();
  return window != nullptr && address - window->address() < window->bytes() ? window : nullptr;
}

void OwnMemory::close(CleanupReport& report) {
  if (allocations_.empty()) return;
  const DriverSection section(*device_.api, device_.context);
  report.note(section.status());
  for (const auto& [base, window] : allocations_) {
    if (window != nullptr) {
      window->close(report);
    } else {
      report.note(device_.api->MemFree(base), "freeing memory of " + device_.name);
    }
  }
  allocations_.clear();
}

}  // namespace unisono::cuda
