// All-reduce, double binary tree: half of the vector is reduced up and broadcast down one in-order
// tree, half along another; who has children in one is a leaf in the other. On 4 ranks:
//
//   first half       3           second half   0
//                  1                             2
//                0   2                         1   3
//
// Rounds about 3 log2 N per chunk; each rank sends at most twice its bytes. `chunks` pipelines.
// Every subtree is a run of ranks, so rank order is kept. P. Sanders, J. Speck, J. L. Traeff,
// "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel Computing 35
// (2009).
#include <algorithm>

#include "algorithms/entries.h"
#include "algorithms/in_order_tree.h"
#include "algorithms/requirements.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {
namespace {

using plan::ChunkRange;

void reduce_up(plan::PlanBuilder& builder, const TreeNode& node, const ChunkRange& input,
               const ChunkRange& output) {
  ChunkRange value = input;
  if (node.left >= 0) {
    builder.receive_reduce(node.left, output, value, true);
    value = output;
  }
  if (node.right >= 0) {
    builder.receive_reduce(node.right, output, value, false);
    value = output;
  }
  if (node.parent >= 0) {
    builder.send(node.parent, value);
  } else {
    builder.copy(output, value);
  }
}

void broadcast_down(plan::PlanBuilder& builder, const TreeNode& node, const ChunkRange& output) {
  if (node.parent >= 0) builder.receive(node.parent, output);
  if (node.left >= 0) builder.send(node.left, output);
  if (node.right >= 0) builder.send(node.right, output);
}

plan::Plan build(const plan::PlanRequest& request) {
  plan::PlanBuilder builder(request, "double_binary_tree", 2, 2);
  const TreeNode nodes[2] = {double_tree_node(0, request.rank, request.ranks),
                             double_tree_node(1, request.rank, request.ranks)};
  const auto chunks = static_cast<std::uint32_t>(request.chunks);
  for (std::uint32_t c = 0; c < chunks; ++c) {
    for (int tree = 0; tree < 2; ++tree) {
      reduce_up(builder, nodes[tree], part(builder.input(tree), c), part(builder.output(tree), c));
    }
  }
  for (std::uint32_t c = 0; c < chunks; ++c) {
    for (int tree = 0; tree < 2; ++tree) {
      broadcast_down(builder, nodes[tree], part(builder.output(tree), c));
    }
  }
  return std::move(builder).finish();
}

Cost cost(int ranks, int, std::size_t bytes) {
  if (ranks == 1) return {};
  const double half = 0.5 * static_cast<double>(bytes);
  // Two rounds up and one down per level; tree 1 has rank 0 on top of its levels.
  return {.rounds = std::max(3 * floor_log2(ranks), 3 * floor_log2(ranks - 1) + 2),
          .bytes_sent = std::min(ranks, 4) * half,
          .bytes_reduced = std::min(ranks - 1, 2) * half};
}

}  // namespace

constinit const Algorithm kAllReduceDoubleBinaryTree{
    "double_binary_tree", Collective::kAllReduce, false, refuse_canonical, build, cost};

}  // namespace unisono::algorithms
