// All-reduce, recursive doubling: in round k the ranks r and r ^ 2^k exchange all they have.
//
//   round 0   0 <-> 1   2 <-> 3      then 0 and 1 hold 0+1, 2 and 3 hold 2+3
//   round 1   0 <-> 2   1 <-> 3      then all hold (0+1)+(2+3)
//
// Rounds log2 N, each rank sends log2 N times its bytes: for small messages. At other N the ranks
// beyond the power of two are folded onto their neighbours: two more rounds. Values merge in rank
// order, at powers of two by the canonical tree. Values alternate between output and scratch.
// R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in
// MPICH", Int. J. High Perform. Comput. Appl. 19 (2005).
#include "algorithms/alternating.h"
#include "algorithms/cost_paths.h"
#include "algorithms/entries.h"
#include "algorithms/folding.h"
#include "algorithms/message_parts.h"
#include "algorithms/requirements.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {
namespace {

using plan::ChunkRange;
using plan::part;

void exchange(plan::PlanBuilder& builder, Rank peer, Rank rank, AlternatingValue& value) {
  const ChunkRange before = value.current();
  const ChunkRange after = value.advance();
  for (std::uint32_t c = 0; c < before.count; ++c) {
    builder.send(peer, part(before, c));
    builder.receive_reduce(peer, part(after, c), part(before, c), peer < rank);
  }
}

plan::Plan build(const plan::PlanRequest& request) {
  plan::PlanBuilder builder(request, "recursive_doubling", 1, 1);
  const Folding folding(request.ranks, request.rank);
  const int chunks = request.chunks;
  if (folding.sits_out()) {
    send_parts(builder, folding.partner, builder.input(0), chunks);
    receive_parts(builder, folding.partner, builder.output(0), chunks);
    return std::move(builder).finish();
  }
  const bool has_partner = folding.partner >= 0;
  AlternatingValue value(builder, builder.input(0), builder.output(0),
                         folding.rounds() + (has_partner ? 1 : 0));
  if (has_partner) {
    const ChunkRange before = value.current();
    receive_reduce_parts(builder, folding.partner, value.advance(), before, false, chunks);
  }
  for (int k = 0; k < folding.rounds(); ++k) {
    exchange(builder, folding.rank_of(folding.index ^ (1 << k)), request.rank, value);
  }
  if (has_partner) send_parts(builder, folding.partner, builder.output(0), chunks);
  return std::move(builder).finish();
}

Cost cost(int ranks, int chunks, std::size_t bytes) {
  const int rounds = floor_log2(ranks);
  const int folded = is_power_of_two(ranks) ? 0 : 1;
  const double whole = static_cast<double>(bytes);
  return with_sender_path({.rounds = rounds + 2 * folded,
                           .bytes_sent = (rounds + folded) * whole,
                           .bytes_reduced = (rounds + folded) * whole},
                          (rounds + 2 * folded) * chunks, folded * whole);
}

}  // namespace

constinit const Algorithm kAllReduceRecursiveDoubling{"recursive_doubling",
                                                      Collective::kAllReduce,
                                                      true,
                                                      need_power_of_two_for_canonical,
                                                      build,
                                                      cost};

}  // namespace unisono::algorithms
