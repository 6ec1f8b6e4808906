// Broadcast, linear: the root sends to every other rank.
//
//   round 0   0 -> 1   0 -> 2   0 -> 3
//
// One round; the root sends N - 1 times its bytes.
#include "algorithms/entries.h"
#include "algorithms/message_parts.h"
#include "algorithms/rank_math.h"
#include "algorithms/requirements.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {
namespace {

plan::Plan build(const plan::PlanRequest& request) {
  const bool is_root = request.rank == request.root;
  plan::PlanBuilder builder(request, "linear", is_root ? 1 : 0, 1);
  if (!is_root) {
    receive_parts(builder, request.root, builder.output(0), request.chunks);
    return std::move(builder).finish();
  }
  for (int distance = 1; distance < request.ranks; ++distance) {
    const Rank peer = wrap(request.rank + distance, request.ranks);
    send_parts(builder, peer, builder.input(0), request.chunks);
  }
  builder.copy(builder.output(0), builder.input(0));
  return std::move(builder).finish();
}

Cost cost(int ranks, int, std::size_t bytes) {
  const double sent = static_cast<double>(bytes) * (ranks - 1);
  return {.rounds = ranks > 1 ? 1 : 0,
          .bytes_sent = sent,
          .path_messages = ranks - 1,
          .path_bytes = sent};
}

}  // namespace

constinit const Algorithm kBroadcastLinear{
    "linear", Collective::kBroadcast, true, refuse_nothing, build, cost};

}  // namespace unisono::algorithms
