// Reduce, binomial negabinary (Bine) tree: the broadcast backwards, the nearest peers first. On 4
// ranks, root 0:
//
//   round 0   1 -> 0   2 -> 3
//   round 1   3 -> 0              (0+1)+(3+2)
//
// Rounds log2 N, for powers of two; each rank sends its bytes once. Peers are on both sides of a
// rank, so rank order is lost.
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

using plan::ChunkRange;

plan::Plan build(const plan::PlanRequest& request) {
  const int ranks = request.ranks;
  const int place = wrap(request.rank - request.root, ranks);
  plan::PlanBuilder builder(request, "bine", 1, place == 0 ? 1 : 0);
  const auto peer = [&](int round) {
    return wrap(request.root + bine_peer(place, round, ranks), ranks);
  };
  const int rounds = place == 0 ? floor_log2(ranks)
                                : std::countr_zero(static_cast<unsigned>(bine_sides(place, ranks)));
  ChunkRange value = builder.input(0);
  for (int round = 0; round < rounds; ++round) {
    ChunkRange target = value;
    if (round == 0) target = place == 0 ? builder.output(0) : builder.add_scratch(value);
    receive_reduce_parts(builder, peer(round), target, value, false, request.chunks);
    value = target;
  }
  if (place == 0) {
    builder.copy(builder.output(0), value);
  } else {
    send_parts(builder, peer(rounds), value, request.chunks);
  }
  return std::move(builder).finish();
}

Cost cost(int ranks, int, std::size_t bytes) {
  const int rounds = floor_log2(ranks);
  const double whole = static_cast<double>(bytes);
  return {.rounds = rounds,
          .bytes_sent = ranks > 1 ? whole : 0,
          .bytes_reduced = rounds * whole,
          .path_messages = rounds,
          .path_bytes = rounds * whole};
}

}  // namespace

constinit const Algorithm kReduceBine{
    "bine", Collective::kReduce, false, need_commutative_at_power_of_two, build, cost};

}  // namespace unisono::algorithms
