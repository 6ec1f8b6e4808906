// The shifted binomial trees of PAT, and which of their edges share a message. The tree of block b
// has position v at rank b + v (mod N), and position v hangs below v less its lowest bit:
//
//   positions of 8 ranks      0
//                     1   2       4
//                         3     5   6
//                                   7
//
// So all ranks do the same at the same time, each for another block. Up to kBlocksPerMessage
// blocks go in one message: those whose positions are `span` apart, in trees walked side by side.
// S. Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale",
// arXiv:2506.20252 (2025).
//
// Pure apart from the builder; safe from any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "plan/plan_builder.h"

namespace unisono::algorithms {

/// Blocks in the longest message, whose scratch is a few of these. Blocks that are cut into chunks
/// are long already, so fewer go together.
inline constexpr int kBlocksPerMessage = 32;

/// Edges of equal length, whose blocks travel in one message.
struct TreeEdges {
  int distance = 0;            ///< in positions, hence in ranks, from parent to child
  std::vector<int> positions;  ///< of the children
};

class AggregatedTrees {
 public:
  AggregatedTrees(int ranks, int chunks);

  /// Trees that are walked side by side. With one of them each message is a single block.
  int width() const { return (ranks_ + span_ - 1) / span_; }
  /// Positions of one of these trees, a power of two.
  int span() const { return span_; }
  /// How many edges() has.
  int messages() const;
  /// From the root down: the longest edges first, then the trees side by side, each depth first.
  /// Every parent's own edge comes before those of its children.
  std::vector<TreeEdges> edges() const;

 private:
  TreeEdges edges_at(int offset, int stride) const;

  int ranks_;
  int span_;
};

/// Where the blocks of all positions lie at one rank, and scratch to bring them together.
class BlocksAtPositions {
 public:
  /// `like`: a block of the length that all have.
  BlocksAtPositions(plan::PlanBuilder& builder, int ranks, const plan::ChunkRange& like);

  plan::ChunkRange& at(int position) { return places_[static_cast<std::size_t>(position)]; }
  /// The blocks of these positions lie in `run`, one after the other.
  void place(std::span<const int> positions, const plan::ChunkRange& run);
  /// The blocks of these positions as one run, where they are one.
  std::optional<plan::ChunkRange> as_run(std::span<const int> positions) const;
  /// Copies the blocks of these positions to `run`; returns it.
  plan::ChunkRange packed(std::span<const int> positions, const plan::ChunkRange& run);

  plan::ChunkRange add_scratch(std::size_t blocks);
  /// Block `index` of a run.
  plan::ChunkRange block_of(const plan::ChunkRange& run, std::size_t index,
                            std::size_t blocks = 1) const;

 private:
  plan::PlanBuilder& builder_;
  plan::ChunkRange like_;
  std::vector<plan::ChunkRange> places_;
};

/// Scratch for the nodes inside the trees side by side. Two runs for each height of a node, in
/// turn: one fills while the other is sent.
class NodeScratch {
 public:
  NodeScratch(BlocksAtPositions& blocks, const AggregatedTrees& trees)
      : blocks_(blocks), trees_(trees) {}

  /// For one block in each of the trees: of their nodes at `offset`. What is asked for twice is the
  /// same scratch.
  plan::ChunkRange of(int offset, std::size_t blocks);
  /// For messages at nodes of this height that nothing needs once they are sent or added.
  plan::ChunkRange passing(int offset, std::size_t blocks);

 private:
  plan::ChunkRange run_at(std::vector<plan::ChunkRange>& runs, int offset, std::size_t blocks);

  BlocksAtPositions& blocks_;
  const AggregatedTrees& trees_;
  std::vector<plan::ChunkRange> runs_;
  std::vector<plan::ChunkRange> passing_;
};

}  // namespace unisono::algorithms
