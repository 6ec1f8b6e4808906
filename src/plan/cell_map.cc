#include "plan/cell_map.h"

#include <algorithm>

namespace unisono::plan {

CellMap::CellMap(const PlanRequest& request, std::uint32_t input_chunks,
                 std::uint32_t output_chunks)
    : output_chunks_(output_chunks) {
  auto& [input, output, scratch] = bases_;
  const auto own_block =
      static_cast<std::uint32_t>(request.rank) * static_cast<std::uint32_t>(request.chunks);
  const bool aliased = request.in_place && input_chunks != 0 && output_chunks != 0;
  switch (aliased ? request.collective : Collective::kBarrier) {
    case Collective::kAllGather:
    case Collective::kAllGatherV:
    case Collective::kGather:
    case Collective::kGatherV:
      input = own_block;
      break;
    case Collective::kReduceScatter:
    case Collective::kReduceScatterV:
    case Collective::kScatter:
    case Collective::kScatterV:
      output = own_block;
      break;
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kBroadcast:
    case Collective::kScan:
    case Collective::kExscan:
    case Collective::kAllToAll:
    case Collective::kAllToAllV:
      break;
    case Collective::kBarrier:
    case Collective::kSend:
    case Collective::kReceive:
      output = input_chunks;
      break;
  }
  scratch = std::max(input + input_chunks, output + output_chunks);
}

}  // namespace unisono::plan
