// Gather, binomial tree: in round k the ranks whose distance from the root has lowest bit k send
// all the blocks they hold. Blocks a b c d, root 0:
//
//   round 0   1 -b-> 0    3 -d-> 2
//   round 1   2 -cd-> 0
//
// Rounds ceil(log2 N); the busiest rank sends up to half of the gathered bytes: for small blocks.
// Inner ranks collect in scratch. `chunks` makes no difference to the number of messages.
#include "algorithms/binomial_blocks.h"
#include "algorithms/entries.h"
#include "algorithms/requirements.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {
namespace {

using plan::ChunkRange;

// One scratch block for each rank of the subtree, the first filled with our own.
ChunkRange make_room(plan::PlanBuilder& builder, int blocks) {
  ChunkRange room = builder.add_scratch(builder.input(0));
  for (int i = 1; i < blocks; ++i) room.count += builder.add_scratch(builder.input(0)).count;
  builder.copy(part(room, 0, builder.input(0).count), builder.input(0));
  return room;
}

plan::Plan build(const plan::PlanRequest& request) {
  const int ranks = request.ranks;
  const bool is_root = request.rank == request.root;
  const int chunks = request.chunks;
  const BinomialSubtree self(wrap(request.rank - request.root, ranks), ranks);
  plan::PlanBuilder builder(request, "binomial", 1, is_root ? ranks : 0);
  ChunkRange held = builder.input(0);
  if (is_root) {
    builder.copy(builder.output(request.root), builder.input(0));
  } else if (!self.is_leaf()) {
    held = make_room(builder, self.size);
  }
  for (int bit = 1; bit < self.size; bit *= 2) {
    const BinomialSubtree child(self.distance + bit, ranks);
    for (const Run& run : child.messages(request.root, ranks)) {
      if (run.count == 0) continue;
      const int block = wrap(request.root + child.distance + run.first, ranks);
      builder.receive(wrap(request.rank + bit, ranks),
                      is_root ? builder.output(block, run.count)
                              : blocks_of(held, bit + run.first, run.count, chunks));
    }
  }
  if (is_root) return std::move(builder).finish();
  for (const Run& run : self.messages(request.root, ranks)) {
    if (run.count == 0) continue;
    builder.send(wrap(request.root + self.parent(), ranks),
                 blocks_of(held, run.first, run.count, chunks));
  }
  return std::move(builder).finish();
}

Cost cost(int ranks, int chunks, std::size_t bytes) {
  int busiest = 0;
  for (int bit = 1; bit < ranks; bit *= 2) {
    busiest = std::max(busiest, BinomialSubtree(bit, ranks).size);
  }
  return {.rounds = ceil_log2(ranks),
          .bytes_sent = static_cast<double>(bytes) * busiest / ranks,
          .path_messages = ceil_log2(ranks) * chunks,
          .path_bytes = static_cast<double>(bytes) * (ranks - 1) / ranks};
}

}  // namespace

constinit const Algorithm kGatherBinomial{
    "binomial", Collective::kGather, true, refuse_nothing, build, cost};

}  // namespace unisono::algorithms
