// Reduce-scatter, recursive halving: ranks exchange halves of what they still hold and reduce.
// Blocks a b c d:
//
//   round 0   0 <-cd|ab-> 2   1 <-cd|ab-> 3
//   round 1   0 <-b|a-> 1     2 <-d|c-> 3       then rank 0 owns a, 1 b, 2 c, 3 d
//
// Rounds log2 N, for powers of two; each rank sends (N - 1) / N of its bytes. Where order matters
// neighbours merge first, which is the canonical tree; then rank r ends with the block of r's bits
// reversed, and one more round brings each block home.
// R. Thakur, R. Rabenseifner, W. Gropp, Int. J. High Perform. Comput. Appl. 19 (2005).
#include "algorithms/cost_paths.h"
#include "algorithms/entries.h"
#include "algorithms/halving_blocks.h"
#include "algorithms/rank_math.h"
#include "algorithms/requirements.h"

namespace unisono::algorithms {
namespace {

std::string_view refuses(const plan::PlanRequest& request) {
  const std::string_view reason = need_power_of_two(request);
  return reason.empty() ? refuse_exact(request) : reason;
}

Rank nearest_first(Rank rank, int round, int) { return rank ^ (1 << round); }
Rank furthest_first(Rank rank, int round, int ranks) { return rank ^ (ranks >> (round + 1)); }

plan::Plan build(const plan::PlanRequest& request) {
  const bool order_matters = !request.commutative || request.order == Order::kCanonical;
  if (!order_matters) {
    return halve_blocks(request, "recursive_halving", {request.rank, request.rank, furthest_first});
  }
  const int reversed = reverse_bits(request.rank, floor_log2(request.ranks));
  return halve_blocks(request, "recursive_halving", {reversed, reversed, nearest_first});
}

Cost cost(int ranks, int chunks, std::size_t bytes) {
  const double share = static_cast<double>(bytes) * (ranks - 1) / ranks;
  return with_sender_path(
      {.rounds = floor_log2(ranks), .bytes_sent = share, .bytes_reduced = share},
      floor_log2(ranks) * chunks);
}

}  // namespace

constinit const Algorithm kReduceScatterRecursiveHalving{
    "recursive_halving", Collective::kReduceScatter, true, refuses, build, cost};

}  // namespace unisono::algorithms
