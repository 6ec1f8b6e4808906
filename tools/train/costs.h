// What loading and training cost each rank or device, brought together on rank 0.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tools/train/strategy.h"
#include "unisono/communicator.h"
#include "unisono/train/loader.h"

namespace unisono::train {

/// Plain values, so that they travel as they are.
struct LoadCost {
  std::uint64_t rank = 0, read = 0, held_bytes = 0, peak_bytes = 0, received_bytes = 0;
  double seconds = 0;
};
struct TrainCost {
  std::uint64_t device = 0, peak_memory = 0;
  std::array<std::uint64_t, kCollectiveCount> calls{}, bytes_sent{}, bytes_received{};
};

/// Collective; by rank, the same on all of them.
std::vector<LoadCost> gather_costs(Communicator& communicator, const LoadReport& mine);
/// By device; `before` is taken off the traffic.
std::vector<TrainCost> gather_costs(Communicator& communicator, const std::vector<DeviceCost>& mine,
                                    const std::vector<DeviceCost>& before);

}  // namespace unisono::train
