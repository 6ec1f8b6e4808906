// All-reduce, ring: reduce-scatter, then all-gather, both around the ring r -> r + 1. Blocks a b c
// d on 4 ranks; in step s of the first phase rank r sends block (r - s) mod 4 to rank r + 1:
//
//   step 0      step 1          step 2              then rank 3 owns a, 0 owns b, 1 c, 2 d, and
//   0 -a-> 1    0 -d3+d0-> 1    0 -c2+c3+c0-> 1     three more steps take them round.
//   1 -b-> 2    1 -a0+a1-> 2    1 -d3+d0+d1-> 2
//   2 -c-> 3    2 -b1+b2-> 3    2 -a0+a1+a2-> 3
//   3 -d-> 0    3 -c2+c3-> 0    3 -b1+b2+b3-> 0
//
// Rounds 2 (N - 1); each rank sends 2 (N - 1) / N of its bytes, the least possible. Each block's
// sum begins at another rank, so rank order is lost.
// P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
// J. Parallel Distrib. Comput. 69 (2009).
#include "algorithms/cost_paths.h"
#include "algorithms/entries.h"
#include "algorithms/rank_math.h"
#include "algorithms/requirements.h"
#include "algorithms/ring_phases.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {
namespace {

plan::Plan build(const plan::PlanRequest& request) {
  const int ranks = request.ranks;
  plan::PlanBuilder builder(request, "ring", ranks, ranks);
  if (ranks == 1) {
    builder.copy(builder.output(0), builder.input(0));
    return std::move(builder).finish();
  }
  builder.reserve(static_cast<std::size_t>(4 * (ranks - 1)) * request.chunks);
  ring_reduce_scatter(builder, request, request.rank,
                      [&](int, int block) { return builder.output(block); });
  const int owned = wrap(request.rank + 1, ranks);
  ring_all_gather(builder, request, owned, builder.output(owned));
  return std::move(builder).finish();
}

Cost cost(int ranks, int chunks, std::size_t bytes) {
  const double share = static_cast<double>(bytes) * (ranks - 1) / ranks;
  return with_sender_path(
      {.rounds = 2 * (ranks - 1), .bytes_sent = 2 * share, .bytes_reduced = share},
      2 * (ranks - 1) * chunks);
}

}  // namespace

constinit const Algorithm kAllReduceRing{
    "ring", Collective::kAllReduce, false, need_commutative, build, cost};

}  // namespace unisono::algorithms
