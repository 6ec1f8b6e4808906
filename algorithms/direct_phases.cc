#include "algorithms/direct_phases.h"

#include <span>
#include <vector>

#include "algorithms/message_parts.h"
#include "algorithms/rank_math.h"

namespace unisono::algorithms {
namespace {

using plan::ChunkRange;
using plan::part;
using plan::PlanBuilder;
using plan::PlanRequest;

// One operand of the local tree. A node overwrites the operand that may best be lost: the one that
// lies where the result is wanted, else one in scratch, never the caller's input.
struct Operand {
  enum class Place { kInput, kScratch, kResult };
  ChunkRange range;
  Place place = Place::kScratch;
};

Operand reduce_tree(PlanBuilder& builder, std::span<const Operand> leaves) {
  if (leaves.size() == 1) return leaves.front();
  const auto split =
      static_cast<std::size_t>(power_of_two_floor(static_cast<int>(leaves.size()) - 1));
  const Operand left = reduce_tree(builder, leaves.first(split));
  const Operand right = reduce_tree(builder, leaves.subspan(split));
  const bool into_left = left.place >= right.place;
  const Operand& target = into_left ? left : right;
  builder.reduce(target.range, (into_left ? right : left).range, !into_left);
  return target;
}

void reduce_at_once(PlanBuilder& builder, const ChunkRange& result,
                    std::span<const Operand> leaves) {
  std::vector<ChunkRange> ranges;
  for (const Operand& leaf : leaves) ranges.push_back(leaf.range);
  builder.reduce_all(result, ranges);
}

}  // namespace

void receive_and_reduce(PlanBuilder& builder, const PlanRequest& request, int operands,
                        const ChunkRange& own, const ChunkRange& result) {
  std::vector<Operand> leaves(static_cast<std::size_t>(operands));
  // The lowest other rank's operand goes where the result is wanted, unless our own lies there.
  bool result_taken = false;
  const bool contributes = request.rank < operands;
  if (contributes) {
    result_taken = builder.same_memory(own, result);
    const auto place = result_taken ? Operand::Place::kResult : Operand::Place::kInput;
    leaves[static_cast<std::size_t>(request.rank)] = {own, place};
  }
  for (int r = 0; r < operands; ++r) {
    if (r == request.rank) continue;
    auto& leaf = leaves[static_cast<std::size_t>(r)];
    leaf = result_taken ? Operand{builder.add_scratch(result), Operand::Place::kScratch}
                        : Operand{result, Operand::Place::kResult};
    result_taken = true;
  }
  std::vector<Operand> of_chunk(leaves.size());
  for (std::uint32_t c = 0; c < result.count; ++c) {
    for (int distance = 1; distance < request.ranks; ++distance) {
      const Rank peer = wrap(request.rank - distance, request.ranks);
      if (peer >= operands) continue;
      builder.receive(peer, part(leaves[static_cast<std::size_t>(peer)].range, c));
    }
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      of_chunk[i] = {part(leaves[i].range, c), leaves[i].place};
    }
    if (request.order == Order::kExact && operands > 1) {
      reduce_at_once(builder, part(result, c), of_chunk);
    } else {
      builder.copy(part(result, c), reduce_tree(builder, of_chunk).range);
    }
  }
}

void direct_all_gather(PlanBuilder& builder, const PlanRequest& request, const ChunkRange& own) {
  for (int distance = 1; distance < request.ranks; ++distance) {
    const Rank source = wrap(request.rank - distance, request.ranks);
    receive_parts(builder, source, builder.output(source), request.chunks);
  }
  for (int distance = 1; distance < request.ranks; ++distance) {
    send_parts(builder, wrap(request.rank + distance, request.ranks), own, request.chunks);
  }
}

void send_blocks(PlanBuilder& builder, const PlanRequest& request) {
  for (int distance = 1; distance < request.ranks; ++distance) {
    const Rank peer = wrap(request.rank + distance, request.ranks);
    send_parts(builder, peer, builder.input(peer), request.chunks);
  }
}

}  // namespace unisono::algorithms
