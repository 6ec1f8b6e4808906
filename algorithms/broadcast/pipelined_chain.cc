// Broadcast, pipelined chain: every rank passes each chunk on to the next as soon as it has it. On
// 4 ranks, root 0, chunks a b:
//
//   round 0   0 -a-> 1
//   round 1   0 -b-> 1   1 -a-> 2
//   round 2              1 -b-> 2   2 -a-> 3
//   round 3                         2 -b-> 3
//
// Rounds N - 1 per chunk; each rank sends its bytes once: for large messages in many chunks.
#include "algorithms/cost_paths.h"
#include "algorithms/entries.h"
#include "algorithms/rank_math.h"
#include "algorithms/requirements.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {
namespace {

plan::Plan build(const plan::PlanRequest& request) {
  const int ranks = request.ranks;
  const int distance = wrap(request.rank - request.root, ranks);
  plan::PlanBuilder builder(request, "pipelined_chain", distance == 0 ? 1 : 0, 1);
  const plan::ChunkRange value = distance == 0 ? builder.input(0) : builder.output(0);
  for (std::uint32_t c = 0; c < value.count; ++c) {
    if (distance != 0) builder.receive(wrap(request.rank - 1, ranks), part(value, c));
    if (distance + 1 < ranks) builder.send(wrap(request.rank + 1, ranks), part(value, c));
  }
  builder.copy(builder.output(0), value);
  return std::move(builder).finish();
}

Cost cost(int ranks, int chunks, std::size_t bytes) {
  if (ranks == 1) return {};
  return with_chain_path({.rounds = ranks - 1, .bytes_sent = static_cast<double>(bytes)}, ranks,
                         chunks, bytes);
}

}  // namespace

constinit const Algorithm kBroadcastPipelinedChain{
    "pipelined_chain", Collective::kBroadcast, true, refuse_nothing, build, cost};

}  // namespace unisono::algorithms
