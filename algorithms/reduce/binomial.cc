// Reduce, binomial tree: in round k the ranks whose distance v from the top has lowest bit k send
// to v - 2^k. On 4 ranks, root 0:
//
//   round 0   1 -> 0   3 -> 2
//   round 1   2 -> 0              (0+1)+(2+3)
//
// Rounds ceil(log2 N); each rank sends its bytes once. With the top at rank 0 this is exactly the
// canonical tree for any N. Where order matters and the root is another rank, rank 0 is the top and
// sends it the result: one round more.
// R. Thakur, R. Rabenseifner, W. Gropp, Int. J. High Perform. Comput. Appl. 19 (2005).
#include "algorithms/entries.h"
#include "algorithms/message_parts.h"
#include "algorithms/rank_math.h"
#include "algorithms/requirements.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {
namespace {

using plan::ChunkRange;

plan::Plan build(const plan::PlanRequest& request) {
  const int ranks = request.ranks;
  const bool is_root = request.rank == request.root;
  plan::PlanBuilder builder(request, "binomial", 1, is_root ? 1 : 0);
  const bool order_matters = !request.commutative || request.order == Order::kCanonical;
  const Rank top = order_matters ? 0 : request.root;
  const int distance = wrap(request.rank - top, ranks);

  ChunkRange value = builder.input(0);
  int bit = 1;
  for (; bit < ranks && (distance & bit) == 0; bit *= 2) {
    if (distance + bit >= ranks) continue;
    ChunkRange target = value;
    if (value.buffer == plan::Buffer::kInput) {
      target = is_root && request.rank == top ? builder.output(0) : builder.add_scratch(value);
    }
    receive_reduce_parts(builder, wrap(request.rank + bit, ranks), target, value, false,
                         request.chunks);
    value = target;
  }
  if (distance != 0) {
    send_parts(builder, wrap(request.rank - bit, ranks), value, request.chunks);
  } else if (!is_root) {
    send_parts(builder, request.root, value, request.chunks);
  }
  if (is_root && request.rank != top) {
    receive_parts(builder, top, builder.output(0), request.chunks);
  } else if (is_root) {
    builder.copy(builder.output(0), value);
  }
  return std::move(builder).finish();
}

Cost cost(int ranks, int, std::size_t bytes) {
  const int rounds = ceil_log2(ranks);
  return {.rounds = rounds,
          .bytes_sent = ranks > 1 ? static_cast<double>(bytes) : 0,
          .bytes_reduced = rounds * static_cast<double>(bytes),
          .path_messages = rounds,
          .path_bytes = rounds * static_cast<double>(bytes)};
}

}  // namespace

constinit const Algorithm kReduceBinomial{
    "binomial", Collective::kReduce, true, refuse_exact, build, cost};

}  // namespace unisono::algorithms
