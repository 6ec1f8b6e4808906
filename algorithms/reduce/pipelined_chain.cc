// Reduce, pipelined chain: every rank adds its own to what comes from one side and passes it on,
// chunk by chunk. On 4 ranks, root 0, chunks a b:
//
//   round 0   3 -a-> 2
//   round 1   3 -b-> 2   2 -a-> 1
//   round 2              2 -b-> 1   1 -a-> 0
//   round 3                         1 -b-> 0
//
// Rounds N - 1 per chunk; each rank sends its bytes once. The chain runs around from root - 1 down
// to the root. Where the operator does not commute two arms meet at the root instead, 0 up and
// N - 1 down, so that no reduction crosses the end of the ranks.
#include "algorithms/cost_paths.h"
#include "algorithms/entries.h"
#include "algorithms/rank_math.h"
#include "algorithms/requirements.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {
namespace {

using plan::ChunkRange;

// Neighbours on the chain; -1: none.
struct ChainPlace {
  Rank below = -1;  // toward this rank from lower positions
  Rank above = -1;
  Rank next = -1;
};

ChainPlace place_of(const plan::PlanRequest& request) {
  const int ranks = request.ranks;
  const int root_position = request.commutative ? 0 : request.root;
  const int shift = request.root - root_position;
  const int position = wrap(request.rank - shift, ranks);
  const auto rank_at = [&](int at) { return wrap(at + shift, ranks); };
  ChainPlace place;
  if (position >= root_position && position + 1 < ranks) place.above = rank_at(position + 1);
  if (position <= root_position && position > 0) place.below = rank_at(position - 1);
  if (position > root_position) place.next = rank_at(position - 1);
  if (position < root_position) place.next = rank_at(position + 1);
  return place;
}

plan::Plan build(const plan::PlanRequest& request) {
  const bool is_root = request.rank == request.root;
  plan::PlanBuilder builder(request, "pipelined_chain", 1, is_root ? 1 : 0);
  const ChainPlace place = place_of(request);
  const ChunkRange input = builder.input(0);
  ChunkRange sums = is_root ? builder.output(0) : input;
  const bool reduces = place.below >= 0 || place.above >= 0;
  if (!is_root && reduces) sums = builder.add_scratch(input);
  for (std::uint32_t c = 0; c < input.count; ++c) {
    ChunkRange value = part(input, c);
    for (const Rank from : {place.below, place.above}) {
      if (from < 0) continue;
      builder.receive_reduce(from, part(sums, c), value, from == place.below);
      value = part(sums, c);
    }
    if (place.next >= 0) builder.send(place.next, value);
    if (is_root) builder.copy(part(sums, c), value);
  }
  return std::move(builder).finish();
}

Cost cost(int ranks, int chunks, std::size_t bytes) {
  if (ranks == 1) return {};
  const double once = static_cast<double>(bytes);
  return with_chain_path({.rounds = ranks - 1, .bytes_sent = once, .bytes_reduced = once}, ranks,
                         chunks, bytes);
}

}  // namespace

constinit const Algorithm kReducePipelinedChain{
    "pipelined_chain", Collective::kReduce, false, refuse_canonical, build, cost};

}  // namespace unisono::algorithms
