#include "tools/train/costs.h"

#include <algorithm>
#include <type_traits>

namespace unisono::train {
namespace {

template <typename T>
std::vector<T> all_of(Communicator& communicator, const std::vector<T>& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (communicator.size() == 1) return mine;
  std::vector<T> all(mine.size() * static_cast<std::size_t>(communicator.size()));
  communicator.all_gather(mine.data(), all.data(), mine.size() * sizeof(T), DataType::kUint8);
  return all;
}

}  // namespace

std::vector<LoadCost> gather_costs(Communicator& communicator, const LoadReport& mine) {
  return all_of<LoadCost>(communicator, {{.rank = static_cast<std::uint64_t>(communicator.rank()),
                                          .read = mine.read,
                                          .held_bytes = mine.held_bytes,
                                          .peak_bytes = mine.peak_bytes,
                                          .received_bytes = mine.received_bytes,
                                          .seconds = mine.seconds}});
}

std::vector<TrainCost> gather_costs(Communicator& communicator, const std::vector<DeviceCost>& mine,
                                    const std::vector<DeviceCost>& before) {
  std::vector<TrainCost> costs;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    TrainCost cost{.device = static_cast<std::uint64_t>(std::max(mine[i].device, 0)),
                   .peak_memory = mine[i].peak_memory};
    const TrafficReport moved = mine[i].traffic - before[i].traffic;
    for (std::size_t kind = 0; kind < moved.calls.size(); ++kind) {
      cost.calls[kind] = moved.calls[kind];
      cost.bytes_sent[kind] = moved.by_collective[kind].bytes_sent;
      cost.bytes_received[kind] = moved.by_collective[kind].bytes_received;
    }
    costs.push_back(cost);
  }
  return all_of(communicator, costs);
}

}  // namespace unisono::train
