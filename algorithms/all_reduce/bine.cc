// All-reduce, binomial negabinary (Bine) butterfly: halving and doubling in which even ranks meet
// the rank 1, -1, 3, -5, ... further on, a third closer than powers of two. Blocks a b c d:
//
//   round 0   0 -cd-> 1   1 -ab-> 0   2 -ab-> 3   3 -cd-> 2
//   round 1   0 -b-> 3    3 -a-> 0    1 -d-> 2    2 -c-> 1     now 0 owns a, 3 b, 2 c, 1 d
//   round 2   0 -a-> 3    3 -b-> 0    1 -d-> 2    2 -c-> 1
//   round 3   0 -ab-> 1   1 -cd-> 0   2 -cd-> 3   3 -ab-> 2
//
// Rounds 2 log2 N; each rank sends 2 (N - 1) / N of its bytes. The ranks that meet run around the
// end, so rank order is lost. At other N as halving_doubling.
// D. De Sensi et al., "Bine trees: enhancing collective operations by optimizing communication
// locality", SC 2025, arXiv:2508.17311.
#include "algorithms/bine.h"

#include "algorithms/entries.h"
#include "algorithms/halving_doubling.h"
#include "algorithms/requirements.h"

namespace unisono::algorithms {
namespace {

HalvingRound meet(int participant, int round, int participants) {
  return {bine_peer(participant, round, participants),
          (bine_sides(participant, participants) >> round & 1) != 0};
}

plan::Plan build(const plan::PlanRequest& request) {
  return halve_and_double(request, "bine", meet);
}

}  // namespace

constinit const Algorithm kAllReduceBine{
    "bine", Collective::kAllReduce, false, need_commutative, build, cost_of_halving_and_doubling};

}  // namespace unisono::algorithms
