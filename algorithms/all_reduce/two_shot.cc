// All-reduce, two shots: every rank collects its block from all others and reduces it by the
// canonical tree, then hands it to all others. Blocks a b c d on 4 ranks:
//
//   round 0   0 -b-> 1  0 -c-> 2  0 -d-> 3    and so on: rank p collects block p
//   round 1   0 -a-> 1 2 3    1 -b-> 2 3 0    2 -c-> 3 0 1    3 -d-> 0 1 2
//
// Two rounds; each rank sends 2 (N - 1) / N of its bytes in 2 (N - 1) messages.
#include "algorithms/cost_paths.h"
#include "algorithms/direct_phases.h"
#include "algorithms/entries.h"
#include "algorithms/requirements.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {
namespace {

plan::Plan build(const plan::PlanRequest& request) {
  plan::PlanBuilder builder(request, "two_shot", request.ranks, request.ranks);
  builder.reserve(static_cast<std::size_t>(5 * request.ranks) * request.chunks);
  send_blocks(builder, request);
  const plan::ChunkRange own = builder.output(request.rank);
  receive_and_reduce(builder, request, request.ranks, builder.input(request.rank), own);
  direct_all_gather(builder, request, own);
  return std::move(builder).finish();
}

Cost cost(int ranks, int chunks, std::size_t bytes) {
  const double share = static_cast<double>(bytes) * (ranks - 1) / ranks;
  return with_sender_path(
      {.rounds = ranks > 1 ? 2 : 0, .bytes_sent = 2 * share, .bytes_reduced = share},
      2 * (ranks - 1) * chunks);
}

}  // namespace

constinit const Algorithm kAllReduceTwoShot{
    "two_shot", Collective::kAllReduce, true, refuse_nothing, build, cost};

}  // namespace unisono::algorithms
