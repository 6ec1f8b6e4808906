// All-to-all, Bruck: a block for the rank at distance i travels along the bits of i; in round k
// all blocks whose i has bit k set go to rank r + 2^k in one message. Distances 0 1 2 3:
//
//   round 0   0 -[1 3]-> 1   1 -[1 3]-> 2   2 -[1 3]-> 3   3 -[1 3]-> 0
//   round 1   0 -[2 3]-> 2   1 -[2 3]-> 3   2 -[2 3]-> 0   3 -[2 3]-> 1
//
// Rounds ceil(log2 N); each rank sends about half of its bytes in each: for small blocks. Blocks
// are packed from wherever they arrived, never rotated or unpacked; about 3 N copies in all.
// J. Bruck et al., IEEE Trans. Parallel Distrib. Syst. 8 (1997).
#include <algorithm>
#include <vector>

#include "algorithms/cost_paths.h"
#include "algorithms/entries.h"
#include "algorithms/rank_math.h"
#include "algorithms/requirements.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {
namespace {

using plan::ChunkRange;

bool continues(const ChunkRange& run, const ChunkRange& next) {
  return run.buffer == next.buffer && run.first + run.count == next.first;
}

// Brings the ranges together in one run: as they are where they adjoin, else in scratch.
ChunkRange pack(plan::PlanBuilder& builder, const std::vector<ChunkRange>& ranges) {
  std::vector<ChunkRange> runs;
  for (const ChunkRange& range : ranges) {
    if (!runs.empty() && continues(runs.back(), range)) {
      runs.back().count += range.count;
    } else {
      runs.push_back(range);
    }
  }
  if (runs.size() == 1) return runs.front();
  const ChunkRange packed = builder.add_scratch(builder.output(0, static_cast<int>(ranges.size())));
  std::uint32_t filled = 0;
  for (const ChunkRange& run : runs) {
    builder.copy(part(packed, filled, run.count), run);
    filled += run.count;
  }
  return packed;
}

plan::Plan build(const plan::PlanRequest& request) {
  const int ranks = request.ranks;
  const auto chunks = static_cast<std::uint32_t>(request.chunks);
  plan::PlanBuilder builder(request, "bruck", ranks, ranks);
  std::vector<ChunkRange> at(static_cast<std::size_t>(ranks));  // where distance i's block is now
  for (int i = 0; i < ranks; ++i) {
    at[static_cast<std::size_t>(i)] = builder.input(wrap(request.rank + i, ranks));
  }
  std::vector<ChunkRange> moving;
  for (int bit = 1; bit < ranks; bit *= 2) {
    moving.clear();
    for (int i = bit; i < ranks; ++i) {
      if ((i & bit) != 0) moving.push_back(at[static_cast<std::size_t>(i)]);
    }
    const ChunkRange packed = pack(builder, moving);
    const ChunkRange landing =
        builder.add_scratch(builder.output(0, static_cast<int>(moving.size())));
    builder.send(wrap(request.rank + bit, ranks), packed);
    builder.receive(wrap(request.rank - bit, ranks), landing);
    std::uint32_t landed = 0;
    for (int i = bit; i < ranks; ++i) {
      if ((i & bit) == 0) continue;
      at[static_cast<std::size_t>(i)] = part(landing, landed, chunks);
      landed += chunks;
    }
  }
  for (int i = 0; i < ranks; ++i) {
    builder.copy(builder.output(wrap(request.rank - i, ranks)), at[static_cast<std::size_t>(i)]);
  }
  return std::move(builder).finish();
}

Cost cost(int ranks, int chunks, std::size_t bytes) {
  // Distances below N with bit k set, over all k.
  std::int64_t blocks = 0;
  for (int bit = 1; bit < ranks; bit *= 2) {
    blocks += ranks / (2 * bit) * bit + std::max(0, ranks % (2 * bit) - bit);
  }
  return with_sender_path(
      {.rounds = ceil_log2(ranks),
       .bytes_sent = static_cast<double>(bytes) * static_cast<double>(blocks) / ranks},
      ceil_log2(ranks) * chunks);
}

}  // namespace

constinit const Algorithm kAllToAllBruck{
    "bruck", Collective::kAllToAll, true, refuse_nothing, build, cost};

}  // namespace unisono::algorithms
