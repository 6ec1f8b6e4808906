// All-gather, linear: every rank sends its block to every other one.
//
//   round 0   0 -a-> 1 2 3   1 -b-> 2 3 0   2 -c-> 3 0 1   3 -d-> 0 1 2
//
// One round of N - 1 messages; each rank sends (N - 1) / N of the gathered bytes.
#include "algorithms/cost_paths.h"
#include "algorithms/direct_phases.h"
#include "algorithms/entries.h"
#include "algorithms/requirements.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {
namespace {

plan::Plan build(const plan::PlanRequest& request) {
  plan::PlanBuilder builder(request, "linear", 1, request.ranks);
  builder.reserve(static_cast<std::size_t>(2 * request.ranks) * request.chunks);
  direct_all_gather(builder, request, builder.input(0));
  builder.copy(builder.output(request.rank), builder.input(0));
  return std::move(builder).finish();
}

Cost cost(int ranks, int chunks, std::size_t bytes) {
  return with_sender_path(
      {.rounds = ranks > 1 ? 1 : 0, .bytes_sent = static_cast<double>(bytes) * (ranks - 1) / ranks},
      (ranks - 1) * chunks);
}

}  // namespace

constinit const Algorithm kAllGatherLinear{
    "linear", Collective::kAllGather, true, refuse_nothing, build, cost};
constinit const Algorithm kAllGatherVLinear{
    "linear", Collective::kAllGatherV, true, refuse_nothing, build, cost};

}  // namespace unisono::algorithms
