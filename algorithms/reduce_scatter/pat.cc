// Reduce-scatter, parallel aggregated trees (PAT): block b goes up a binomial tree that ends at
// rank b, the shortest edges first; blocks that take edges of equal length share a message. Blocks
// a b c d:
//
//   round 0   0 -bd-> 3   1 -ac-> 0   2 -bd-> 1   3 -ac-> 2
//   round 1   0 -c-> 2    1 -d-> 3    2 -a-> 0    3 -b-> 1     then rank 0 owns a, 1 b, 2 c, 3 d
//
// So N / 2 blocks go to the next rank and 1 block N / 2 ranks far. Rounds ceil(log2 N) for any N
// up to 2 m, where m is the power of two from 32 / chunks down, the blocks in the longest message.
// Beyond that the lowest L = ceil(log2 N) - log2 m levels are walked in m trees side by side, depth
// first, so that partial results take scratch of at most m (3 + 4 L) blocks: log2 m + N / (2 m) + 2
// rounds at most, 3 N / 8 + 4 where chunks > 16, so that m = 1. Each rank sends (N - 1) / N of its
// bytes. The trees run around the ranks, so rank order is lost.
// S. Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale",
// arXiv:2506.20252 (2025).
#include <algorithm>

#include "algorithms/aggregated_trees.h"
#include "algorithms/cost_paths.h"
#include "algorithms/entries.h"
#include "algorithms/message_parts.h"
#include "algorithms/rank_math.h"
#include "algorithms/requirements.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {
namespace {

using plan::Buffer;
using plan::ChunkRange;

class Walk {
 public:
  Walk(plan::PlanBuilder& builder, const plan::PlanRequest& request)
      : builder_(builder),
        request_(request),
        trees_(request.ranks, request.chunks),
        blocks_(builder, request.ranks, builder.input(0)),
        scratch_(blocks_, trees_) {
    for (int position = 0; position < request.ranks; ++position) {
      blocks_.at(position) = builder.input(wrap(request.rank - position, request.ranks));
    }
  }

  void run() {
    std::vector<TreeEdges> edges = trees_.edges();
    std::reverse(edges.begin(), edges.end());
    for (const TreeEdges& up : edges) {
      send(up);
      receive(up, &up == &edges.back());
    }
  }

 private:
  // Leaves, whose operands are the caller's, follow one another through the same scratch.
  void send(const TreeEdges& up) {
    const std::size_t count = up.positions.size();
    auto run = blocks_.as_run(up.positions);
    if (!run) {
      const int offset = up.positions[0];
      const bool is_leaf = up.distance == 1;
      const bool is_far = up.distance >= trees_.span();
      run = blocks_.packed(up.positions, is_leaf  ? scratch_.of(offset, count)
                                         : is_far ? blocks_.add_scratch(count)
                                                  : scratch_.passing(offset, count));
    }
    send_parts(builder_, wrap(request_.rank - up.distance, request_.ranks), *run, request_.chunks);
  }

  void receive(const TreeEdges& up, bool is_last) {
    const std::size_t count = up.positions.size();
    const Rank from = wrap(request_.rank + up.distance, request_.ranks);
    std::vector<int> parents = up.positions;
    for (int& position : parents) position -= up.distance;
    const auto values = blocks_.as_run(parents);
    const bool are_operands = blocks_.at(parents[0]).buffer == Buffer::kInput;
    const int offset = parents[0] % trees_.span();
    if (values) {
      const ChunkRange target = is_last        ? builder_.output(0)
                                : are_operands ? scratch_.of(offset, count)
                                               : *values;
      receive_reduce_parts(builder_, from, target, *values, false, request_.chunks);
      blocks_.place(parents, target);
    } else {
      const bool is_passing = up.distance < trees_.span() && have_values(parents);
      add_each(parents, from,
               are_operands ? scratch_.of(offset, count)
               : is_passing ? scratch_.passing(up.positions[0], count)
                            : blocks_.add_scratch(count));
    }
  }

  bool have_values(const std::vector<int>& positions) {
    return std::ranges::none_of(
        positions, [&](int position) { return blocks_.at(position).buffer == Buffer::kInput; });
  }

  // The message becomes the value where the rank's own operand is all there was.
  void add_each(const std::vector<int>& parents, Rank from, const ChunkRange& message) {
    receive_parts(builder_, from, message, request_.chunks);
    for (std::size_t i = 0; i < parents.size(); ++i) {
      ChunkRange& value = blocks_.at(parents[i]);
      const ChunkRange added = blocks_.block_of(message, i);
      if (value.buffer == Buffer::kInput) {
        builder_.reduce(added, value, true);
        value = added;
      } else {
        builder_.reduce(value, added, false);
      }
    }
  }

  plan::PlanBuilder& builder_;
  const plan::PlanRequest& request_;
  AggregatedTrees trees_;
  BlocksAtPositions blocks_;
  NodeScratch scratch_;
};

plan::Plan build(const plan::PlanRequest& request) {
  plan::PlanBuilder builder(request, "pat", request.ranks, 1);
  if (request.ranks == 1) {
    builder.copy(builder.output(0), builder.input(0));
  } else {
    Walk(builder, request).run();
  }
  return std::move(builder).finish();
}

// The values of a node are added one after the other, and the next node waits for its scratch. At
// most so many: trees that end early, of which there may be two, have less to wait for.
int rounds_of(const AggregatedTrees& trees, int ranks) {
  const int span = trees.span();
  if (trees.width() == 1) return std::min(3 * ranks / 8 + 4, ranks - 1);
  const int rounds = std::min(span / 2 + 2, span - 1);
  if (trees.width() == 2) return 1 + std::min(rounds, span / 4 + ranks / 8 + 4);
  return ceil_log2(trees.width()) + rounds;
}

Cost cost(int ranks, int chunks, std::size_t bytes) {
  const double share = static_cast<double>(bytes) * (ranks - 1) / ranks;
  const AggregatedTrees trees(ranks, chunks);
  return with_sender_path(
      {.rounds = rounds_of(trees, ranks), .bytes_sent = share, .bytes_reduced = share},
      trees.messages() * chunks);
}

}  // namespace

constinit const Algorithm kReduceScatterPat{
    "pat", Collective::kReduceScatter, false, need_commutative, build, cost};

}  // namespace unisono::algorithms
