// Barrier, dissemination: in round k rank r tells rank r + 2^k that it and all it has heard of have
// arrived. Messages are empty.
//
//   round 0   0 -> 1   1 -> 2   2 -> 3   3 -> 0
//   round 1   0 -> 2   1 -> 3   2 -> 0   3 -> 1
//
// Rounds ceil(log2 N).
// D. Hensgen, R. Finkel, U. Manber, "Two algorithms for barrier synchronization", Int. J. Parallel
// Program. 17 (1988).
#include <vector>

#include "algorithms/cost_paths.h"
#include "algorithms/entries.h"
#include "algorithms/rank_math.h"
#include "algorithms/requirements.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {
namespace {

plan::Plan build(const plan::PlanRequest& request) {
  const int ranks = request.ranks;
  plan::PlanBuilder builder(request, "dissemination", 0, 0);
  const plan::ChunkRange nothing = builder.output(0, 0);
  std::vector<plan::StepIndex> heard;
  for (int distance = 1; distance < ranks; distance *= 2) {
    for (const plan::StepIndex receive : heard) builder.order_after(receive);
    builder.send(wrap(request.rank + distance, ranks), nothing);
    heard.push_back(builder.receive(wrap(request.rank - distance, ranks), nothing));
  }
  return std::move(builder).finish();
}

Cost cost(int ranks, int, std::size_t) {
  return with_sender_path({.rounds = ceil_log2(ranks)}, ceil_log2(ranks));
}

}  // namespace

constinit const Algorithm kBarrierDissemination{
    "dissemination", Collective::kBarrier, true, refuse_nothing, build, cost};

}  // namespace unisono::algorithms
