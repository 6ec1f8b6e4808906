// All-reduce, recursive halving and doubling (Rabenseifner): halves are exchanged and reduced with
// rank r ^ 1, quarters with r ^ 2, ...; then the way back gathers. Blocks a b c d on 4 ranks:
//
//   round 0   0 -cd-> 1   1 -ab-> 0   2 -cd-> 3   3 -ab-> 2
//   round 1   0 -b-> 2    2 -a-> 0    1 -d-> 3    3 -c-> 1     now 0 owns a, 2 b, 1 c, 3 d
//   round 2   0 -a-> 2    2 -b-> 0    1 -c-> 3    3 -d-> 1
//   round 3   0 -ab-> 1   1 -cd-> 0   2 -ab-> 3   3 -cd-> 2
//
// Rounds 2 log2 N; each rank sends 2 (N - 1) / N of its bytes. Neighbours merge first, hence rank
// order and, at powers of two, the canonical tree. At other N the ranks beyond the power of two
// are folded onto their neighbours: two rounds and one vector more.
// R. Rabenseifner, "Optimization of collective reduction operations", ICCS 2004.
#include "algorithms/halving_doubling.h"

#include "algorithms/entries.h"
#include "algorithms/requirements.h"

namespace unisono::algorithms {
namespace {

HalvingRound meet(int participant, int round, int) {
  return {participant ^ (1 << round), (participant >> round & 1) != 0};
}

plan::Plan build(const plan::PlanRequest& request) {
  return halve_and_double(request, "halving_doubling", meet);
}

}  // namespace

constinit const Algorithm kAllReduceHalvingDoubling{"halving_doubling",
                                                    Collective::kAllReduce,
                                                    true,
                                                    need_power_of_two_for_canonical,
                                                    build,
                                                    cost_of_halving_and_doubling};

}  // namespace unisono::algorithms
