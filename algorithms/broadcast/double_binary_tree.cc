// Broadcast, double binary tree: the root feeds half of the vector into each of two trees over the
// other ranks; who has children in one is a leaf in the other. On 8 ranks, root 0:
//
//   first half   1                second half     4
//                  5                            2   6
//                3   7                         1 3 5 7
//               2 4 6
//
// Rounds about log2 N + 1 per chunk; no rank sends more than its bytes, so both directions of
// every link are busy. `chunks` pipelines.
// P. Sanders, J. Speck, J. L. Traeff, Parallel Computing 35 (2009).
#include "algorithms/entries.h"
#include "algorithms/in_order_tree.h"
#include "algorithms/requirements.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {
namespace {

// The pair over the distances 1 .. N - 1 from the root, as distances: tree 0 begins at distance 1,
// whose index is 0, and tree 1 at the top of 1 .. N - 1.
TreeNode node_of(int tree, int distance, int ranks) {
  if (tree == 1) return in_order_node(distance, ranks - 1);
  if (distance == 0) return {.right = ranks > 1 ? 1 : -1};
  TreeNode node = in_order_node(distance - 1, ranks - 2);
  node.parent += 1;  // index 0 has no parent, -1, which becomes the root at distance 0
  if (node.left >= 0) node.left += 1;
  if (node.right >= 0) node.right += 1;
  return node;
}

plan::Plan build(const plan::PlanRequest& request) {
  const int ranks = request.ranks;
  const int distance = wrap(request.rank - request.root, ranks);
  plan::PlanBuilder builder(request, "double_binary_tree", distance == 0 ? 2 : 0, 2);
  const auto rank_at = [&](int at) { return wrap(at + request.root, ranks); };
  const auto chunks = static_cast<std::uint32_t>(request.chunks);
  for (std::uint32_t c = 0; c < chunks; ++c) {
    for (int tree = 0; tree < 2; ++tree) {
      const TreeNode node = node_of(tree, distance, ranks);
      const plan::ChunkRange value =
          part(distance == 0 ? builder.input(tree) : builder.output(tree), c);
      if (distance != 0) builder.receive(rank_at(node.parent), value);
      if (node.left >= 0) builder.send(rank_at(node.left), value);
      if (node.right >= 0) builder.send(rank_at(node.right), value);
    }
  }
  if (distance == 0) builder.copy(builder.output(0, 2), builder.input(0, 2));
  return std::move(builder).finish();
}

Cost cost(int ranks, int, std::size_t bytes) {
  if (ranks == 1) return {};
  return {.rounds = ranks == 2 ? 1 : floor_log2(ranks - 2) + 2,
          .bytes_sent = static_cast<double>(bytes)};
}

}  // namespace

constinit const Algorithm kBroadcastDoubleBinaryTree{
    "double_binary_tree", Collective::kBroadcast, true, refuse_nothing, build, cost};

}  // namespace unisono::algorithms
