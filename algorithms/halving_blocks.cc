#include "algorithms/halving_blocks.h"

#include "algorithms/message_parts.h"
#include "algorithms/rank_math.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {
namespace {

using plan::ChunkRange;

// The blocks that are still being reduced here, and where they lie.
struct Held {
  int first = 0;
  int count = 0;
  ChunkRange range;

  ChunkRange blocks(int from, int length, int chunks) const {
    return plan::part(range, static_cast<std::uint32_t>((from - first) * chunks),
                      static_cast<std::uint32_t>(length * chunks));
  }
};

}  // namespace

plan::Plan halve_blocks(const plan::PlanRequest& request, std::string_view name,
                        const HalvingOrder& order) {
  plan::PlanBuilder builder(request, name, request.ranks, 1);
  const int rounds = floor_log2(request.ranks);
  const bool ends_at_home = order.kept == request.rank;

  Held held{0, request.ranks, builder.input(0, request.ranks)};
  for (int k = 0; k < rounds; ++k) {
    const int length = held.count / 2;
    const Rank peer = order.peer(request.rank, k, request.ranks);
    const bool upper = (order.kept & length) != 0;
    const int keep = upper ? held.first + length : held.first;
    const int give = upper ? held.first : held.first + length;
    const ChunkRange source = held.blocks(keep, length, request.chunks);
    ChunkRange target = source;
    if (k == rounds - 1 && ends_at_home) {
      target = builder.output(0);
    } else if (k == 0) {
      target = builder.add_scratch(source);
    }
    send_parts(builder, peer, held.blocks(give, length, request.chunks), request.chunks);
    receive_reduce_parts(builder, peer, target, source, peer < request.rank, request.chunks);
    held = {keep, length, target};
  }
  if (!ends_at_home) {
    send_parts(builder, order.kept, held.range, request.chunks);
    receive_parts(builder, order.holder, builder.output(0), request.chunks);
  }
  if (request.ranks == 1) builder.copy(builder.output(0), builder.input(0));
  return std::move(builder).finish();
}

}  // namespace unisono::algorithms
