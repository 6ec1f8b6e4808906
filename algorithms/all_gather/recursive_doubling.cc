// All-gather, recursive doubling: in round k rank r exchanges all it has with rank r ^ 2^k. Blocks
// a b c d:
//
//   round 0   0 <-a|b-> 1     2 <-c|d-> 3
//   round 1   0 <-ab|cd-> 2   1 <-ab|cd-> 3
//
// Rounds log2 N, for powers of two; each rank sends (N - 1) / N of the gathered bytes.
// R. Thakur, R. Rabenseifner, W. Gropp, Int. J. High Perform. Comput. Appl. 19 (2005).
#include "algorithms/cost_paths.h"
#include "algorithms/entries.h"
#include "algorithms/message_parts.h"
#include "algorithms/requirements.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {
namespace {

plan::Plan build(const plan::PlanRequest& request) {
  plan::PlanBuilder builder(request, "recursive_doubling", 1, request.ranks);
  builder.copy(builder.output(request.rank), builder.input(0));
  for (int length = 1; length < request.ranks; length *= 2) {
    const Rank peer = request.rank ^ length;
    const int first = request.rank & ~(length - 1);
    const auto source = length == 1 ? builder.input(0) : builder.output(first, length);
    send_parts(builder, peer, source, request.chunks);
    receive_parts(builder, peer, builder.output(first ^ length, length), request.chunks);
  }
  return std::move(builder).finish();
}

Cost cost(int ranks, int chunks, std::size_t bytes) {
  return with_sender_path(
      {.rounds = ceil_log2(ranks), .bytes_sent = static_cast<double>(bytes) * (ranks - 1) / ranks},
      ceil_log2(ranks) * chunks);
}

}  // namespace

constinit const Algorithm kAllGatherRecursiveDoubling{
    "recursive_doubling", Collective::kAllGather, true, need_power_of_two, build, cost};

}  // namespace unisono::algorithms
