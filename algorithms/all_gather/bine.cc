// All-gather, binomial negabinary (Bine) butterfly: ranks exchange all they have, the most with the
// nearest. Even ranks meet the rank ..., -5, 3, -1, 1 further on, a third closer than powers of
// two. First each block moves to the rank from which on what ranks have is a run. Blocks a b c d:
//
//   round 0   1 -b-> 3        3 -d-> 1          now 0 has a, 3 b, 2 c, 1 d
//   round 1   0 <-a|b-> 3     2 <-c|d-> 1
//   round 2   0 <-ab|cd-> 1   3 <-ab|cd-> 2
//
// Rounds log2 N + 1, for powers of two; each rank sends the gathered bytes at most.
// D. De Sensi et al., "Bine trees: enhancing collective operations by optimizing communication
// locality", SC 2025, arXiv:2508.17311.
#include "algorithms/bine.h"

#include "algorithms/cost_paths.h"
#include "algorithms/entries.h"
#include "algorithms/halving_doubling.h"
#include "algorithms/message_parts.h"
#include "algorithms/requirements.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {
namespace {

HalvingRound meet(int participant, int round, int participants) {
  return {.peer = bine_peer(participant, round, participants)};
}

plan::Plan build(const plan::PlanRequest& request) {
  const int ranks = request.ranks;
  const int chunks = request.chunks;
  plan::PlanBuilder builder(request, "bine", 1, ranks);
  builder.copy(builder.output(request.rank), builder.input(0));
  const int first = bine_block(request.rank, ranks);
  if (first != request.rank) {
    send_parts(builder, bine_holder(request.rank, ranks), builder.input(0), chunks);
    receive_parts(builder, first, builder.output(first), chunks);
  }
  gather_doubles(builder, request, Folding(ranks, request.rank), meet, first);
  return std::move(builder).finish();
}

Cost cost(int ranks, int chunks, std::size_t bytes) {
  const int moves = ranks > 2 ? 1 : 0;
  return with_sender_path({.rounds = floor_log2(ranks) + moves,
                           .bytes_sent = static_cast<double>(bytes) * (ranks - 1 + moves) / ranks},
                          (floor_log2(ranks) + moves) * chunks);
}

}  // namespace

constinit const Algorithm kAllGatherBine{
    "bine", Collective::kAllGather, true, need_power_of_two, build, cost};

}  // namespace unisono::algorithms
