// Access to the memory of other devices of this process. Owned by one DeviceMemory, guarded by it.
#pragma once

#include <array>
#include <map>
#include <vector>

#include "base/result.h"
#include "cuda/memory/cleanup_report.h"
#include "cuda/memory/device.h"

namespace unisono::cuda {

class PeerAccess {
 public:
  explicit PeerAccess(const Device& device) : device_(device) {}

  /// Lets the device's context reach what cuMemAlloc gave on device `ordinal`; once per device.
  /// kUnsupported where the two cannot reach each other.
  Status enable(int ordinal);
  /// Ok where the device can reach device `ordinal` at all.
  Status check_reachable(int ordinal) const;
  /// The device with that uuid among those this process sees; -1: none.
  int ordinal_of(const std::array<std::uint8_t, 16>& uuid) const;
  std::vector<std::array<std::uint8_t, 16>> out_of_reach() const;
  /// Access itself stays: other ranks of this process may use the same context.
  void close(CleanupReport& report);

 private:
  const Device& device_;
  std::map<int, CUdevice> retained_;  ///< by ordinal: its primary context is kept
};

}  // namespace unisono::cuda
