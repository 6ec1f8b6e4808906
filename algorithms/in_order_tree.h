// Binary trees numbered in order, so that every subtree is a run of neighbouring ranks and a
// reduction along them keeps rank order. Odd indices are leaves, even ones are inside:
//
//   index   1 2 3 4 5 6 7            4
//                                2       6
//                               1 3     5 7
//
// Pure; safe from any thread. P. Sanders, J. Speck, J. L. Traeff, "Two-tree algorithms for full
// bandwidth broadcast, reduction and scan", Parallel Computing 35 (2009); the numbering is NCCL's.
#pragma once

#include "algorithms/rank_math.h"

namespace unisono::algorithms {

/// Neighbours of a node; -1: none.
struct TreeNode {
  int parent = -1;
  int left = -1;   ///< has lower indices only
  int right = -1;  ///< has higher indices only
};

/// Node `index` of the tree over 1 .. last, below an index 0 whose only child is the top.
constexpr TreeNode in_order_node(int index, int last) {
  TreeNode node;
  if (index == 0) {
    if (last > 0) node.right = power_of_two_floor(last);
    return node;
  }
  const int low = index & -index;
  const int outer = (index ^ low) | (low << 1);
  node.parent = outer > last ? index ^ low : outer;
  if (low == 1) return node;
  node.left = index - low / 2;
  // The right subtree is cut at `last`: its top is the highest node that exists there.
  for (int step = low / 2; step > 0 && node.right < 0; step /= 2) {
    if (index + step <= last) node.right = index + step;
  }
  return node;
}

/// Node of `rank` in tree 0 or 1 of the pair over `ranks` ranks, as ranks. Tree 0 has the odd
/// ranks inside and no index 0; tree 1 has the even ranks inside and rank 0 above the top. So no
/// rank but rank 0 has children in both.
constexpr TreeNode double_tree_node(int tree, Rank rank, int ranks) {
  if (tree == 1) return in_order_node(rank, ranks - 1);
  TreeNode node = in_order_node(rank + 1, ranks);
  const auto to_rank = [](int index) { return index > 0 ? index - 1 : -1; };
  return {to_rank(node.parent), to_rank(node.left), to_rank(node.right)};
}

}  // namespace unisono::algorithms
