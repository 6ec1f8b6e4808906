// Reduce, linear: every rank sends to the root, which reduces by the canonical tree or at once.
//
//   round 0   1 -> 0   2 -> 0   3 -> 0      then (0+1)+(2+3) at root 0
//
// One round; each rank sends its bytes once, the root receives N - 1 times as much.
#include "algorithms/direct_phases.h"
#include "algorithms/entries.h"
#include "algorithms/message_parts.h"
#include "algorithms/requirements.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {
namespace {

plan::Plan build(const plan::PlanRequest& request) {
  const bool is_root = request.rank == request.root;
  plan::PlanBuilder builder(request, "linear", 1, is_root ? 1 : 0);
  if (is_root) {
    receive_and_reduce(builder, request, request.ranks, builder.input(0), builder.output(0));
  } else {
    send_parts(builder, request.root, builder.input(0), request.chunks);
  }
  return std::move(builder).finish();
}

Cost cost(int ranks, int, std::size_t bytes) {
  const double whole = static_cast<double>(bytes);
  return {.rounds = ranks > 1 ? 1 : 0,
          .bytes_sent = ranks > 1 ? whole : 0,
          .bytes_reduced = whole * (ranks - 1),
          .path_messages = ranks - 1,
          .path_bytes = whole * (ranks - 1)};
}

}  // namespace

constinit const Algorithm kReduceLinear{"linear", Collective::kReduce, true, refuse_nothing, build,
                                        cost};

}  // namespace unisono::algorithms
