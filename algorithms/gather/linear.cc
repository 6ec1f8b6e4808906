// Gather, linear: every rank sends its block to the root.
//
//   round 0   1 -b-> 0   2 -c-> 0   3 -d-> 0
//
// One round; each rank sends 1 / N of the gathered bytes. A rank that is not root needs to know
// its own block only, so this serves gather_v too.
#include "algorithms/entries.h"
#include "algorithms/message_parts.h"
#include "algorithms/rank_math.h"
#include "algorithms/requirements.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {
namespace {

plan::Plan build(const plan::PlanRequest& request) {
  const bool is_root = request.rank == request.root;
  plan::PlanBuilder builder(request, "linear", 1, is_root ? request.ranks : 0);
  if (!is_root) {
    send_parts(builder, request.root, builder.input(0), request.chunks);
    return std::move(builder).finish();
  }
  for (int distance = 1; distance < request.ranks; ++distance) {
    const Rank peer = wrap(request.root + distance, request.ranks);
    receive_parts(builder, peer, builder.output(peer), request.chunks);
  }
  builder.copy(builder.output(request.root), builder.input(0));
  return std::move(builder).finish();
}

Cost cost(int ranks, int chunks, std::size_t bytes) {
  return {.rounds = ranks > 1 ? 1 : 0,
          .bytes_sent = ranks > 1 ? static_cast<double>(bytes) / ranks : 0,
          .path_messages = (ranks - 1) * chunks,
          .path_bytes = static_cast<double>(bytes) * (ranks - 1) / ranks};
}

}  // namespace

constinit const Algorithm kGatherLinear{"linear", Collective::kGather, true, refuse_nothing, build,
                                        cost};
constinit const Algorithm kGatherVLinear{
    "linear", Collective::kGatherV, true, refuse_nothing, build, cost};

}  // namespace unisono::algorithms
