// Reduce-scatter, binomial negabinary (Bine) butterfly: ranks exchange halves of what they still
// hold, the largest with the nearest; even ranks meet the rank 1, -1, 3, -5, ... further on, a
// third closer than powers of two. Blocks a b c d:
//
//   round 0   0 <-cd|ab-> 1   3 <-cd|ab-> 2
//   round 1   0 <-b|a-> 3     2 <-d|c-> 1       now 0 owns a, 3 b, 2 c, 1 d
//   round 2   1 -d-> 3        3 -b-> 1
//
// Rounds log2 N + 1, for powers of two, the last of which brings blocks home; each rank sends its
// bytes once at most. The ranks that meet run around the end, so rank order is lost.
// D. De Sensi et al., "Bine trees: enhancing collective operations by optimizing communication
// locality", SC 2025, arXiv:2508.17311.
#include "algorithms/bine.h"

#include "algorithms/cost_paths.h"
#include "algorithms/entries.h"
#include "algorithms/halving_blocks.h"
#include "algorithms/requirements.h"

namespace unisono::algorithms {
namespace {

plan::Plan build(const plan::PlanRequest& request) {
  return halve_blocks(request, "bine",
                      {bine_block(request.rank, request.ranks),
                       bine_holder(request.rank, request.ranks), bine_peer});
}

Cost cost(int ranks, int chunks, std::size_t bytes) {
  const double whole = static_cast<double>(bytes);
  const int moves = ranks > 2 ? 1 : 0;
  return with_sender_path({.rounds = floor_log2(ranks) + moves,
                           .bytes_sent = whole * (ranks - 1 + moves) / ranks,
                           .bytes_reduced = whole * (ranks - 1) / ranks},
                          (floor_log2(ranks) + moves) * chunks);
}

}  // namespace

constinit const Algorithm kReduceScatterBine{
    "bine", Collective::kReduceScatter, false, need_commutative_at_power_of_two, build, cost};

}  // namespace unisono::algorithms
