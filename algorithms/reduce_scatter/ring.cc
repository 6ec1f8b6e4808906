// Reduce-scatter, ring: block b starts at rank b + 1, goes once round the ring and collects each
// rank's own on the way. Blocks a b c d; in step s rank r sends block r - 1 - s:
//
//   step 0   1 -a-> 2         2 -b-> 3   3 -c-> 0   0 -d-> 1
//   step 1   2 -a1+a2-> 3     ...
//   step 2   3 -a1+a2+a3-> 0  ...                                then rank 0 owns a, 1 b, 2 c, 3 d
//
// Rounds N - 1; each rank sends (N - 1) / N of its bytes, the least possible. Partial results
// alternate between two scratch blocks; where blocks differ in length each has its own.
// P. Patarasuk, X. Yuan, J. Parallel Distrib. Comput. 69 (2009).
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
  plan::PlanBuilder builder(request, "ring", ranks, 1);
  if (ranks == 1) {
    builder.copy(builder.output(0), builder.input(0));
    return std::move(builder).finish();
  }
  builder.reserve(static_cast<std::size_t>(2 * ranks) * request.chunks);
  const bool equal_blocks = request.collective == Collective::kReduceScatter;
  plan::ChunkRange slots[2];
  ring_reduce_scatter(builder, request, wrap(request.rank - 1, ranks), [&](int step, int block) {
    if (step == ranks - 2) return builder.output(0);
    plan::ChunkRange& slot = slots[step % 2];
    if (step < 2 || !equal_blocks) slot = builder.add_scratch(builder.input(block));
    return slot;
  });
  return std::move(builder).finish();
}

Cost cost(int ranks, int chunks, std::size_t bytes) {
  const double share = static_cast<double>(bytes) * (ranks - 1) / ranks;
  return with_sender_path({.rounds = ranks - 1, .bytes_sent = share, .bytes_reduced = share},
                          (ranks - 1) * chunks);
}

}  // namespace

constinit const Algorithm kReduceScatterRing{
    "ring", Collective::kReduceScatter, false, need_commutative, build, cost};
constinit const Algorithm kReduceScatterVRing{
    "ring", Collective::kReduceScatterV, false, need_commutative, build, cost};

}  // namespace unisono::algorithms
