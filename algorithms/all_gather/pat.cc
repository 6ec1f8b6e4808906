// All-gather, parallel aggregated trees (PAT): the block of rank b goes down a binomial tree that
// begins at b, the longest edges first; blocks that take edges of equal length share a message.
// Blocks a b c d:
//
//   round 0   0 -a-> 2    1 -b-> 3    2 -c-> 0    3 -d-> 1
//   round 1   0 -ac-> 1   1 -bd-> 2   2 -ca-> 3   3 -db-> 0
//
// So 1 block goes N / 2 ranks far and N / 2 blocks go to the next rank, where Bruck's algorithm
// does the opposite. Rounds ceil(log2 N) for any N up to 2 m, where m is the power of two from
// 32 / chunks down, the blocks in the longest message, and for any N where chunks > 16, so that
// m = 1 and nothing is put together. Else the last L = ceil(log2 N) - log2 m levels are walked in m
// trees side by side, depth first: log2 m + N / (4 m) + 1. Each rank sends (N - 1) / N of the
// gathered bytes. Messages are put together in scratch of at most m (2 + 3 L) blocks.
// S. Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale",
// arXiv:2506.20252 (2025).
#include "algorithms/aggregated_trees.h"
#include "algorithms/cost_paths.h"
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
  plan::PlanBuilder builder(request, "pat", 1, ranks);
  builder.copy(builder.output(request.rank), builder.input(0));
  const AggregatedTrees trees(ranks, request.chunks);
  BlocksAtPositions blocks(builder, ranks, builder.output(request.rank));
  NodeScratch scratch(blocks, trees);

  // What comes on the far edges is kept in one run, which begins with this rank's own block.
  std::size_t kept = 1;
  blocks.at(0) = builder.input(0);
  if (trees.width() > 1) blocks.at(0) = blocks.packed({{0}}, scratch.of(0, 1));
  for (const TreeEdges& edges : trees.edges()) {
    const std::size_t count = edges.positions.size();
    std::vector<int> parents = edges.positions;
    for (int& position : parents) position -= edges.distance;
    const auto run = blocks.as_run(parents);
    const ChunkRange source = run ? *run : blocks.packed(parents, blocks.add_scratch(count));
    ChunkRange target = builder.output(wrap(request.rank - edges.positions[0], ranks));
    if (edges.distance >= trees.span()) {
      target = blocks.block_of(scratch.of(0, kept + count), kept, count);
      kept += count;
    } else if (trees.width() > 1) {
      target = scratch.of(edges.positions[0], count);
    }
    send_parts(builder, wrap(request.rank + edges.distance, ranks), source, request.chunks);
    receive_parts(builder, wrap(request.rank - edges.distance, ranks), target, request.chunks);
    blocks.place(edges.positions, target);
    for (const int position : edges.positions) {
      builder.copy(builder.output(wrap(request.rank - position, ranks)), blocks.at(position));
    }
  }
  return std::move(builder).finish();
}

Cost cost(int ranks, int chunks, std::size_t bytes) {
  const AggregatedTrees trees(ranks, chunks);
  // Side by side, every other leaf waits for the scratch of the last but one.
  const int aggregated = ceil_log2(trees.width()) + trees.span() / 4 + 1;
  return with_sender_path({.rounds = trees.width() == 1 ? ceil_log2(ranks) : aggregated,
                           .bytes_sent = static_cast<double>(bytes) * (ranks - 1) / ranks},
                          trees.messages() * chunks);
}

}  // namespace

constinit const Algorithm kAllGatherPat{"pat", Collective::kAllGather, true, refuse_nothing, build,
                                        cost};

}  // namespace unisono::algorithms
