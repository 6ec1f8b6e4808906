// Scatter, linear: the root sends every rank its block.
//
//   round 0   0 -b-> 1   0 -c-> 2   0 -d-> 3
//
// One round; the root sends (N - 1) / N of its bytes. A rank that is not root needs to know its
// own block only, so this serves scatter_v too.
#include "algorithms/cost_paths.h"
#include "algorithms/entries.h"
#include "algorithms/message_parts.h"
#include "algorithms/rank_math.h"
#include "algorithms/requirements.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {
namespace {

plan::Plan build(const plan::PlanRequest& request) {
  const bool is_root = request.rank == request.root;
  plan::PlanBuilder builder(request, "linear", is_root ? request.ranks : 0, 1);
  if (!is_root) {
    receive_parts(builder, request.root, builder.output(0), request.chunks);
    return std::move(builder).finish();
  }
  for (int distance = 1; distance < request.ranks; ++distance) {
    const Rank peer = wrap(request.root + distance, request.ranks);
    send_parts(builder, peer, builder.input(peer), request.chunks);
  }
  builder.copy(builder.output(0), builder.input(request.root));
  return std::move(builder).finish();
}

Cost cost(int ranks, int chunks, std::size_t bytes) {
  return with_sender_path(
      {.rounds = ranks > 1 ? 1 : 0, .bytes_sent = static_cast<double>(bytes) * (ranks - 1) / ranks},
      (ranks - 1) * chunks);
}

}  // namespace

constinit const Algorithm kScatterLinear{
    "linear", Collective::kScatter, true, refuse_nothing, build, cost};
constinit const Algorithm kScatterVLinear{
    "linear", Collective::kScatterV, true, refuse_nothing, build, cost};

}  // namespace unisono::algorithms
