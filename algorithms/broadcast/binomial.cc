// Broadcast, binomial tree: who has the data sends to the rank at half the remaining distance. On
// 4 ranks, root 0:
//
//   round 0   0 -> 2
//   round 1   0 -> 1   2 -> 3
//
// Rounds ceil(log2 N); the root sends ceil(log2 N) times its bytes.
// R. Thakur, R. Rabenseifner, W. Gropp, Int. J. High Perform. Comput. Appl. 19 (2005).
#include "algorithms/entries.h"
#include "algorithms/message_parts.h"
#include "algorithms/rank_math.h"
#include "algorithms/requirements.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {
namespace {

plan::Plan build(const plan::PlanRequest& request) {
  const int ranks = request.ranks;
  const int distance = wrap(request.rank - request.root, ranks);
  plan::PlanBuilder builder(request, "binomial", distance == 0 ? 1 : 0, 1);
  plan::ChunkRange value = distance == 0 ? builder.input(0) : builder.output(0);
  int bit = 1 << ceil_log2(ranks);
  if (distance != 0) {
    bit = distance & -distance;
    receive_parts(builder, wrap(request.rank - bit, ranks), value, request.chunks);
  }
  for (bit /= 2; bit > 0; bit /= 2) {
    if (distance + bit >= ranks) continue;
    send_parts(builder, wrap(request.rank + bit, ranks), value, request.chunks);
  }
  builder.copy(builder.output(0), value);
  return std::move(builder).finish();
}

Cost cost(int ranks, int, std::size_t bytes) {
  const int rounds = ceil_log2(ranks);
  const double sent = rounds * static_cast<double>(bytes);
  return {.rounds = rounds, .bytes_sent = sent, .path_messages = rounds, .path_bytes = sent};
}

}  // namespace

constinit const Algorithm kBroadcastBinomial{
    "binomial", Collective::kBroadcast, true, refuse_nothing, build, cost};

}  // namespace unisono::algorithms
