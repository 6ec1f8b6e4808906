// Scatter, binomial tree: who holds a run of blocks sends its upper half away. Blocks a b c d,
// root 0:
//
//   round 0   0 -cd-> 2
//   round 1   0 -b-> 1    2 -d-> 3
//
// Rounds ceil(log2 N); the root sends (N - 1) / N of its bytes in ceil(log2 N) messages: for small
// blocks. Inner ranks hold their run in scratch. `chunks` makes no difference to the messages.
#include "algorithms/binomial_blocks.h"
#include "algorithms/cost_paths.h"
#include "algorithms/entries.h"
#include "algorithms/requirements.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {
namespace {

using plan::ChunkRange;

ChunkRange make_room(plan::PlanBuilder& builder, int blocks) {
  ChunkRange room = builder.add_scratch(builder.output(0));
  for (int i = 1; i < blocks; ++i) room.count += builder.add_scratch(builder.output(0)).count;
  return room;
}

plan::Plan build(const plan::PlanRequest& request) {
  const int ranks = request.ranks;
  const bool is_root = request.rank == request.root;
  const int chunks = request.chunks;
  const BinomialSubtree self(wrap(request.rank - request.root, ranks), ranks);
  plan::PlanBuilder builder(request, "binomial", is_root ? ranks : 0, 1);
  ChunkRange held = builder.output(0);
  if (!is_root) {
    if (!self.is_leaf()) held = make_room(builder, self.size);
    for (const Run& run : self.messages(request.root, ranks)) {
      if (run.count == 0) continue;
      builder.receive(wrap(request.root + self.parent(), ranks),
                      blocks_of(held, run.first, run.count, chunks));
    }
  }
  for (int bit = power_of_two_floor(self.size); bit > 0; bit /= 2) {
    if (bit >= self.size) continue;
    const BinomialSubtree child(self.distance + bit, ranks);
    for (const Run& run : child.messages(request.root, ranks)) {
      if (run.count == 0) continue;
      const int block = wrap(request.root + child.distance + run.first, ranks);
      builder.send(wrap(request.rank + bit, ranks),
                   is_root ? builder.input(block, run.count)
                           : blocks_of(held, bit + run.first, run.count, chunks));
    }
  }
  builder.copy(builder.output(0),
               is_root ? builder.input(request.root) : blocks_of(held, 0, 1, chunks));
  return std::move(builder).finish();
}

Cost cost(int ranks, int chunks, std::size_t bytes) {
  return with_sender_path(
      {.rounds = ceil_log2(ranks), .bytes_sent = static_cast<double>(bytes) * (ranks - 1) / ranks},
      ceil_log2(ranks) * chunks);
}

}  // namespace

constinit const Algorithm kScatterBinomial{
    "binomial", Collective::kScatter, true, refuse_nothing, build, cost};

}  // namespace unisono::algorithms
