// The binomial tree over distances from the root that gather and scatter share: the subtree of
// distance v holds the blocks of distances v .. v + size - 1. Pure; safe from any thread.
#pragma once

#include <algorithm>
#include <array>

#include "algorithms/rank_math.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {

struct BinomialSubtree {
  int distance = 0;  ///< from the root, going up around the ranks
  int size = 1;      ///< ranks in it, this one included

  BinomialSubtree(int distance, int ranks) : distance(distance) {
    const int reach = distance == 0 ? ranks : distance & -distance;
    size = std::min(reach, ranks - distance);
  }
  bool is_leaf() const { return size == 1; }
  int parent() const { return distance & (distance - 1); }

  /// The messages in which this subtree's blocks travel to or from the parent, as offsets in the
  /// subtree: where the parent is the root, whose blocks lie by rank, a run must not wrap.
  std::array<Run, 2> messages(Rank root, int ranks) const {
    if (parent() != 0) return {Run{0, size}, Run{size, 0}};
    const int head = unwrapped(root + distance, size, ranks)[0].count;
    return {Run{0, head}, Run{head, size - head}};
  }
};

/// `count` blocks from offset `first` of what a subtree holds.
inline plan::ChunkRange blocks_of(const plan::ChunkRange& held, int first, int count, int chunks) {
  return plan::part(held, static_cast<std::uint32_t>(first * chunks),
                    static_cast<std::uint32_t>(count * chunks));
}

}  // namespace unisono::algorithms
