#include "plan/expectation.h"

namespace unisono::plan {

Expectation expected(const PlanRequest& request, std::uint32_t output_chunk) {
  const auto chunks = static_cast<std::uint32_t>(request.chunks);
  const auto block = static_cast<Rank>(output_chunk / chunks);
  const std::uint32_t in_block = output_chunk % chunks;
  const std::uint32_t in_own_block = static_cast<std::uint32_t>(request.rank) * chunks + in_block;
  switch (request.collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
      return {0, request.ranks, output_chunk};
    case Collective::kScan:
      return {0, request.rank + 1, output_chunk};
    case Collective::kExscan:
      return {0, request.rank, output_chunk};
    case Collective::kBroadcast:
      return {request.root, 1, output_chunk};
    case Collective::kAllGather:
    case Collective::kAllGatherV:
    case Collective::kGather:
    case Collective::kGatherV:
      return {block, 1, in_block};
    case Collective::kReduceScatter:
    case Collective::kReduceScatterV:
      return {0, request.ranks, in_own_block};
    case Collective::kScatter:
    case Collective::kScatterV:
      return {request.root, 1, in_own_block};
    case Collective::kAllToAll:
    case Collective::kAllToAllV:
      return {block, 1, in_own_block};
    case Collective::kBarrier:
    case Collective::kSend:
    case Collective::kReceive:
      break;
  }
  return {};
}

}  // namespace unisono::plan
