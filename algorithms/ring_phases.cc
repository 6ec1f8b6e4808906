#include "algorithms/ring_phases.h"

#include "algorithms/rank_math.h"

namespace unisono::algorithms {

using plan::ChunkRange;
using plan::part;

void ring_reduce_scatter(plan::PlanBuilder& builder, const plan::PlanRequest& request, int first,
                         const PartialTarget& target_of) {
  const Rank next = wrap(request.rank + 1, request.ranks);
  const Rank previous = wrap(request.rank - 1, request.ranks);
  ChunkRange outgoing = builder.input(first);
  for (int step = 0; step + 1 < request.ranks; ++step) {
    const int block = wrap(first - step - 1, request.ranks);
    const ChunkRange own = builder.input(block);
    const ChunkRange partial = target_of(step, block);
    for (std::uint32_t c = 0; c < own.count; ++c) {
      builder.send(next, part(outgoing, c));
      builder.receive_reduce(previous, part(partial, c), part(own, c), true);
    }
    outgoing = partial;
  }
}

void ring_all_gather(plan::PlanBuilder& builder, const plan::PlanRequest& request, int owned,
                     const ChunkRange& owned_source) {
  const Rank next = wrap(request.rank + 1, request.ranks);
  const Rank previous = wrap(request.rank - 1, request.ranks);
  ChunkRange outgoing = owned_source;
  for (int step = 0; step + 1 < request.ranks; ++step) {
    const ChunkRange incoming = builder.output(wrap(owned - step - 1, request.ranks));
    for (std::uint32_t c = 0; c < incoming.count; ++c) {
      builder.send(next, part(outgoing, c));
      builder.receive(previous, part(incoming, c));
    }
    outgoing = incoming;
  }
}

}  // namespace unisono::algorithms
