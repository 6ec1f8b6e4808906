// Broadcast, binomial negabinary (Bine) tree: who has the data sends to its peers of the Bine
// butterfly, the furthest first: ..., -5, 3, -1, 1 ranks on, a third closer than powers of two. On
// 4 ranks, root 0:
//
//   round 0   0 -> 3
//   round 1   0 -> 1   3 -> 2
//
// Rounds log2 N, for powers of two; the root sends log2 N times its bytes.
// D. De Sensi et al., "Bine trees: enhancing collective operations by optimizing communication
// locality", SC 2025, arXiv:2508.17311.
#include "algorithms/bine.h"

#include <bit>

#include "algorithms/entries.h"
#include "algorithms/message_parts.h"
#include "algorithms/requirements.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {
namespace {

plan::Plan build(const plan::PlanRequest& request) {
  const int ranks = request.ranks;
  const int place = wrap(request.rank - request.root, ranks);
  plan::PlanBuilder builder(request, "bine", place == 0 ? 1 : 0, 1);
  const auto value = place == 0 ? builder.input(0) : builder.output(0);
  const auto peer = [&](int round) {
    return wrap(request.root + bine_peer(place, round, ranks), ranks);
  };
  int round = floor_log2(ranks);
  if (place != 0) {
    round = std::countr_zero(static_cast<unsigned>(bine_sides(place, ranks)));
    receive_parts(builder, peer(round), value, request.chunks);
  }
  while (--round >= 0) send_parts(builder, peer(round), value, request.chunks);
  builder.copy(builder.output(0), value);
  return std::move(builder).finish();
}

Cost cost(int ranks, int, std::size_t bytes) {
  const int rounds = floor_log2(ranks);
  const double sent = rounds * static_cast<double>(bytes);
  return {.rounds = rounds, .bytes_sent = sent, .path_messages = rounds, .path_bytes = sent};
}

}  // namespace

constinit const Algorithm kBroadcastBine{
    "bine", Collective::kBroadcast, true, need_power_of_two, build, cost};

}  // namespace unisono::algorithms
