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
#include "algorithms/entries.h"
#include "algorithms/message_parts.h"
#include "algorithms/rank_math.h"
#include "algorithms/requirements.h"
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

std::string_view refuses(const plan::PlanRequest& request) {
  const std::string_view reason = need_power_of_two(request);
  return reason.empty() ? refuse_exact(request) : reason;
}

plan::Plan build(const plan::PlanRequest& request) {
  const int ranks = request.ranks;
  const int rounds = floor_log2(ranks);
  const bool order_matters = !request.commutative || request.order == Order::kCanonical;
  const int position = order_matters ? reverse_bits(request.rank, rounds) : request.rank;
  plan::PlanBuilder builder(request, "recursive_halving", ranks, 1);

  Held held{0, ranks, builder.input(0, ranks)};
  for (int k = 0; k < rounds; ++k) {
    const int length = held.count / 2;
    const Rank peer = request.rank ^ (order_matters ? 1 << k : length);
    const bool upper = (position & length) != 0;
    const int keep = upper ? held.first + length : held.first;
    const int give = upper ? held.first : held.first + length;
    const ChunkRange source = held.blocks(keep, length, request.chunks);
    ChunkRange target = source;
    if (k == rounds - 1 && position == request.rank) {
      target = builder.output(0);
    } else if (k == 0) {
      target = builder.add_scratch(source);
    }
    send_parts(builder, peer, held.blocks(give, length, request.chunks), request.chunks);
    receive_reduce_parts(builder, peer, target, source, peer < request.rank, request.chunks);
    held = {keep, length, target};
  }
  if (position != request.rank) {
    send_parts(builder, position, held.range, request.chunks);
    receive_parts(builder, position, builder.output(0), request.chunks);
  }
  if (ranks == 1) builder.copy(builder.output(0), builder.input(0));
  return std::move(builder).finish();
}

Cost cost(int ranks, int, std::size_t bytes) {
  const double share = static_cast<double>(bytes) * (ranks - 1) / ranks;
  return {.rounds = floor_log2(ranks), .bytes_sent = share, .bytes_reduced = share};
}

}  // namespace

constinit const Algorithm kReduceScatterRecursiveHalving{
    "recursive_halving", Collective::kReduceScatter, true, refuses, build, cost};

}  // namespace unisono::algorithms
