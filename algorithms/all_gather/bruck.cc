// All-gather, Bruck: in round k rank r sends all it has, blocks r .. r + 2^k - 1 (mod N), to rank
// r - 2^k. Blocks a b c d:
//
//   round 0   1 -b-> 0    2 -c-> 1    3 -d-> 2    0 -a-> 3
//   round 1   2 -cd-> 0   3 -da-> 1   0 -ab-> 2   1 -bc-> 3
//
// Rounds ceil(log2 N) for any N; each rank sends (N - 1) / N of the gathered bytes. A run of blocks
// that wraps goes in two messages straight to its place, so nothing is rotated afterwards.
// J. Bruck et al., "Efficient algorithms for all-to-all communications in multiport
// message-passing systems", IEEE Trans. Parallel Distrib. Syst. 8 (1997).
#include <algorithm>

#include "algorithms/cost_paths.h"
#include "algorithms/entries.h"
#include "algorithms/message_parts.h"
#include "algorithms/rank_math.h"
#include "algorithms/requirements.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {
namespace {

plan::Plan build(const plan::PlanRequest& request) {
  const int ranks = request.ranks;
  plan::PlanBuilder builder(request, "bruck", 1, ranks);
  builder.copy(builder.output(request.rank), builder.input(0));
  for (int distance = 1; distance < ranks; distance *= 2) {
    const int count = std::min(distance, ranks - distance);
    const Rank to = wrap(request.rank - distance, ranks);
    const Rank from = wrap(request.rank + distance, ranks);
    for (const Run& run : unwrapped(request.rank, count, ranks)) {
      const auto source =
          distance == 1 ? builder.input(0, run.count) : builder.output(run.first, run.count);
      if (run.count > 0) send_parts(builder, to, source, request.chunks);
    }
    for (const Run& run : unwrapped(from, count, ranks)) {
      const auto target = builder.output(run.first, run.count);
      if (run.count > 0) receive_parts(builder, from, target, request.chunks);
    }
  }
  return std::move(builder).finish();
}

Cost cost(int ranks, int chunks, std::size_t bytes) {
  return with_sender_path(
      {.rounds = ceil_log2(ranks), .bytes_sent = static_cast<double>(bytes) * (ranks - 1) / ranks},
      ceil_log2(ranks) * chunks);
}

}  // namespace

constinit const Algorithm kAllGatherBruck{
    "bruck", Collective::kAllGather, true, refuse_nothing, build, cost};

}  // namespace unisono::algorithms
