// All-to-all, linear: every rank sends each other rank its block, all at once.
//
//   round 0   0 -> 1 2 3   1 -> 2 3 0   2 -> 3 0 1   3 -> 0 1 2
//
// One round of N - 1 messages; each rank sends (N - 1) / N of its bytes. In place the outgoing
// blocks are copied to scratch first: two ranks that each waited for their own send before taking
// the other's block would wait for ever.
#include "algorithms/cost_paths.h"
#include "algorithms/entries.h"
#include "algorithms/message_parts.h"
#include "algorithms/rank_math.h"
#include "algorithms/requirements.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {
namespace {

plan::Plan build(const plan::PlanRequest& request) {
  const int ranks = request.ranks;
  plan::PlanBuilder builder(request, "linear", ranks, ranks);
  builder.reserve(static_cast<std::size_t>(3 * ranks) * request.chunks);
  for (int distance = 1; distance < ranks; ++distance) {
    const Rank peer = wrap(request.rank + distance, ranks);
    plan::ChunkRange source = builder.input(peer);
    if (request.in_place) {
      source = builder.add_scratch(source);
      builder.copy(source, builder.input(peer));
    }
    send_parts(builder, peer, source, request.chunks);
  }
  for (int distance = 1; distance < ranks; ++distance) {
    const Rank peer = wrap(request.rank - distance, ranks);
    receive_parts(builder, peer, builder.output(peer), request.chunks);
  }
  builder.copy(builder.output(request.rank), builder.input(request.rank));
  return std::move(builder).finish();
}

Cost cost(int ranks, int chunks, std::size_t bytes) {
  return with_sender_path(
      {.rounds = ranks > 1 ? 1 : 0, .bytes_sent = static_cast<double>(bytes) * (ranks - 1) / ranks},
      (ranks - 1) * chunks);
}

}  // namespace

constinit const Algorithm kAllToAllLinear{
    "linear", Collective::kAllToAll, true, refuse_nothing, build, cost};
constinit const Algorithm kAllToAllVLinear{
    "linear", Collective::kAllToAllV, true, refuse_nothing, build, cost};

}  // namespace unisono::algorithms
