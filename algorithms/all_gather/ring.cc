// All-gather, ring: in step s rank r passes block r - s (mod N) on to rank r + 1. Blocks a b c d:
//
//   step 0   0 -a-> 1   1 -b-> 2   2 -c-> 3   3 -d-> 0
//   step 1   0 -d-> 1   1 -a-> 2   2 -b-> 3   3 -c-> 0
//   step 2   0 -c-> 1   1 -d-> 2   2 -a-> 3   3 -b-> 0
//
// Rounds N - 1; each rank sends (N - 1) / N of the gathered bytes, the least possible.
#include "algorithms/cost_paths.h"
#include "algorithms/entries.h"
#include "algorithms/requirements.h"
#include "algorithms/ring_phases.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {
namespace {

plan::Plan build(const plan::PlanRequest& request) {
  plan::PlanBuilder builder(request, "ring", 1, request.ranks);
  builder.reserve(static_cast<std::size_t>(2 * request.ranks) * request.chunks);
  ring_all_gather(builder, request, request.rank, builder.input(0));
  builder.copy(builder.output(request.rank), builder.input(0));
  return std::move(builder).finish();
}

Cost cost(int ranks, int chunks, std::size_t bytes) {
  return with_sender_path(
      {.rounds = ranks - 1, .bytes_sent = static_cast<double>(bytes) * (ranks - 1) / ranks},
      (ranks - 1) * chunks);
}

}  // namespace

constinit const Algorithm kAllGatherRing{
    "ring", Collective::kAllGather, true, refuse_nothing, build, cost};
constinit const Algorithm kAllGatherVRing{
    "ring", Collective::kAllGatherV, true, refuse_nothing, build, cost};

}  // namespace unisono::algorithms
