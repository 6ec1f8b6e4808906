// Reduce-scatter, direct: every rank collects its block from all others and reduces it by the
// canonical tree. Blocks a b c d:
//
//   round 0   0 -b-> 1  0 -c-> 2  0 -d-> 3    and so on: rank p collects block p
//
// One round of N - 1 messages; each rank sends (N - 1) / N of its bytes.
#include "algorithms/cost_paths.h"
#include "algorithms/direct_phases.h"
#include "algorithms/entries.h"
#include "algorithms/requirements.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {
namespace {

plan::Plan build(const plan::PlanRequest& request) {
  plan::PlanBuilder builder(request, "direct", request.ranks, 1);
  builder.reserve(static_cast<std::size_t>(3 * request.ranks) * request.chunks);
  send_blocks(builder, request);
  receive_and_reduce(builder, request, request.ranks, builder.input(request.rank),
                     builder.output(0));
  return std::move(builder).finish();
}

Cost cost(int ranks, int chunks, std::size_t bytes) {
  const double share = static_cast<double>(bytes) * (ranks - 1) / ranks;
  return with_sender_path(
      {.rounds = ranks > 1 ? 1 : 0, .bytes_sent = share, .bytes_reduced = share},
      (ranks - 1) * chunks);
}

}  // namespace

constinit const Algorithm kReduceScatterDirect{
    "direct", Collective::kReduceScatter, true, refuse_nothing, build, cost};
constinit const Algorithm kReduceScatterVDirect{
    "direct", Collective::kReduceScatterV, true, refuse_nothing, build, cost};

}  // namespace unisono::algorithms
