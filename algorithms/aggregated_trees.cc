#include "algorithms/aggregated_trees.h"

#include <algorithm>

#include "algorithms/rank_math.h"

namespace unisono::algorithms {

using plan::ChunkRange;

AggregatedTrees::AggregatedTrees(int ranks, int chunks) : ranks_(ranks) {
  const int positions = 1 << ceil_log2(ranks);
  const int blocks = power_of_two_floor(std::max(kBlocksPerMessage / chunks, 1));
  // The longest message has one block of every other position.
  span_ = ranks == 1 ? 1 : std::max(positions / blocks, 2);
}

int AggregatedTrees::messages() const { return ceil_log2(width()) + std::min(span_, ranks_) - 1; }

std::vector<TreeEdges> AggregatedTrees::edges() const {
  std::vector<TreeEdges> all;
  if (ranks_ == 1) return all;
  all.reserve(static_cast<std::size_t>(messages()));
  const int positions = 1 << ceil_log2(ranks_);
  for (int distance = positions / 2; distance >= span_; distance /= 2) {
    all.push_back(edges_at(distance, 2 * distance));
  }
  for (int offset = 1; offset < std::min(span_, ranks_); ++offset) {
    all.push_back(edges_at(offset, span_));
  }
  return all;
}

// The positions `offset` and what is `stride` apart, in the order in which far edges reach them.
TreeEdges AggregatedTrees::edges_at(int offset, int stride) const {
  const int bits = ceil_log2((ranks_ + stride - 1) / stride);
  TreeEdges edges{offset & -offset, {}};
  for (int i = 0; i < 1 << bits; ++i) {
    const int position = offset + reverse_bits(i, bits) * stride;
    if (position < ranks_) edges.positions.push_back(position);
  }
  return edges;
}

BlocksAtPositions::BlocksAtPositions(plan::PlanBuilder& builder, int ranks, const ChunkRange& like)
    : builder_(builder), like_(like), places_(static_cast<std::size_t>(ranks)) {}

void BlocksAtPositions::place(std::span<const int> positions, const ChunkRange& run) {
  for (std::size_t i = 0; i < positions.size(); ++i) at(positions[i]) = block_of(run, i);
}

std::optional<ChunkRange> BlocksAtPositions::as_run(std::span<const int> positions) const {
  const auto place = [&](std::size_t i) { return places_[static_cast<std::size_t>(positions[i])]; };
  for (std::size_t i = 1; i < positions.size(); ++i) {
    if (place(i) != block_of(place(0), i)) return std::nullopt;
  }
  return block_of(place(0), 0, positions.size());
}

ChunkRange BlocksAtPositions::packed(std::span<const int> positions, const ChunkRange& run) {
  for (std::size_t i = 0; i < positions.size(); ++i) {
    builder_.copy(block_of(run, i), at(positions[i]));
  }
  return run;
}

ChunkRange BlocksAtPositions::add_scratch(std::size_t blocks) {
  ChunkRange run = builder_.add_scratch(like_);
  for (std::size_t i = 1; i < blocks; ++i) builder_.add_scratch(like_);
  return block_of(run, 0, blocks);
}

ChunkRange BlocksAtPositions::block_of(const ChunkRange& run, std::size_t index,
                                       std::size_t blocks) const {
  return plan::part(run, static_cast<std::uint32_t>(index) * like_.count,
                    static_cast<std::uint32_t>(blocks) * like_.count);
}

ChunkRange NodeScratch::of(int offset, std::size_t blocks) { return run_at(runs_, offset, blocks); }

ChunkRange NodeScratch::passing(int offset, std::size_t blocks) {
  return run_at(passing_, offset, blocks);
}

ChunkRange NodeScratch::run_at(std::vector<ChunkRange>& runs, int offset, std::size_t blocks) {
  const int height = offset == 0 ? floor_log2(trees_.span()) : floor_log2(offset & -offset);
  const int turn = offset >> (height + 1) & 1;
  const auto index = static_cast<std::size_t>(2 * height + turn);
  if (index >= runs.size()) runs.resize(index + 1);
  ChunkRange& run = runs[index];
  if (run.count == 0) run = blocks_.add_scratch(static_cast<std::size_t>(trees_.width()));
  return blocks_.block_of(run, 0, blocks);
}

}  // namespace unisono::algorithms
