// All-reduce, one shot: every rank sends its vector to every other one and reduces all of them by
// itself, by the canonical tree or at once.
//
//   round 0   0 -> 1 2 3    1 -> 2 3 0    2 -> 3 0 1    3 -> 0 1 2      then (0+1)+(2+3) everywhere
//
// One round; each rank sends N - 1 times its bytes and holds N - 2 vectors of scratch (N - 1 in
// place): for few ranks and small vectors.
#include "algorithms/cost_paths.h"
#include "algorithms/direct_phases.h"
#include "algorithms/entries.h"
#include "algorithms/message_parts.h"
#include "algorithms/rank_math.h"
#include "algorithms/requirements.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {
namespace {

plan::Plan build(const plan::PlanRequest& request) {
  plan::PlanBuilder builder(request, "one_shot", 1, 1);
  for (int distance = 1; distance < request.ranks; ++distance) {
    const Rank peer = wrap(request.rank + distance, request.ranks);
    send_parts(builder, peer, builder.input(0), request.chunks);
  }
  receive_and_reduce(builder, request, request.ranks, builder.input(0), builder.output(0));
  return std::move(builder).finish();
}

Cost cost(int ranks, int chunks, std::size_t bytes) {
  const double all = static_cast<double>(bytes) * (ranks - 1);
  return with_sender_path({.rounds = ranks > 1 ? 1 : 0, .bytes_sent = all, .bytes_reduced = all},
                          (ranks - 1) * chunks);
}

}  // namespace

constinit const Algorithm kAllReduceOneShot{
    "one_shot", Collective::kAllReduce, true, refuse_nothing, build, cost};

}  // namespace unisono::algorithms
