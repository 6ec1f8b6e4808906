// Scan and exscan, recursive doubling: in round k rank r holds the sum of up to 2^k ranks that ends
// with its own operand and hands it to rank r + 2^k, which puts it on the left.
//
//   round 0   0 -0-> 1   1 -1-> 2    2 -2-> 3      then 01 at 1, 12 at 2, 23 at 3
//   round 1   0 -0-> 2   1 -01-> 3                 then 012 at 2, 0123 at 3
//
// Rounds ceil(log2 N); a rank sends up to ceil(log2 N) times its bytes: for small vectors. Exscan
// first shifts every operand up one rank and then scans over ranks 1 .. N - 1. Rank order is kept.
// W. D. Hillis, G. L. Steele, "Data parallel algorithms", Commun. ACM 29 (1986).
#include <algorithm>

#include "algorithms/alternating.h"
#include "algorithms/cost_paths.h"
#include "algorithms/entries.h"
#include "algorithms/message_parts.h"
#include "algorithms/rank_math.h"
#include "algorithms/requirements.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {
namespace {

using plan::ChunkRange;

// Scan over ranks first .. N - 1, of the value `start` at this rank, into the output.
void scan_from(plan::PlanBuilder& builder, const plan::PlanRequest& request, Rank first,
               const ChunkRange& start) {
  const int updates = ceil_log2(request.rank - first + 1);  // receives: all 2^k <= rank - first
  AlternatingValue value(builder, start, builder.output(0), updates);
  for (int distance = 1; distance < request.ranks - first; distance *= 2) {
    const ChunkRange before = value.current();
    if (request.rank + distance < request.ranks) {
      send_parts(builder, request.rank + distance, before, request.chunks);
    }
    if (request.rank - distance >= first) {
      receive_reduce_parts(builder, request.rank - distance, value.advance(), before, true,
                           request.chunks);
    }
  }
}

plan::Plan build_scan(const plan::PlanRequest& request) {
  plan::PlanBuilder builder(request, "recursive_doubling", 1, 1);
  scan_from(builder, request, 0, builder.input(0));
  return std::move(builder).finish();
}

plan::Plan build_exscan(const plan::PlanRequest& request) {
  plan::PlanBuilder builder(request, "recursive_doubling", 1, 1);
  if (request.rank + 1 < request.ranks) {
    send_parts(builder, request.rank + 1, builder.input(0), request.chunks);
  }
  if (request.rank == 0) return std::move(builder).finish();
  // Rank 1 has its result with this; elsewhere, and out of the way of our own send, scratch.
  const ChunkRange shifted =
      request.rank == 1 ? builder.output(0) : builder.add_scratch(builder.input(0));
  receive_parts(builder, request.rank - 1, shifted, request.chunks);
  scan_from(builder, request, 1, shifted);
  return std::move(builder).finish();
}

Cost scan_cost(int ranks, int chunks, std::size_t bytes) {
  const int rounds = ceil_log2(ranks);
  const double all = rounds * static_cast<double>(bytes);
  return with_sender_path({.rounds = rounds, .bytes_sent = all, .bytes_reduced = all},
                          rounds * chunks);
}

Cost exscan_cost(int ranks, int chunks, std::size_t bytes) {
  if (ranks == 1) return {};
  Cost cost = scan_cost(ranks - 1, chunks, bytes);
  cost.rounds += 1;
  cost.bytes_sent += static_cast<double>(bytes);
  return with_sender_path(cost, cost.rounds * chunks);
}

}  // namespace

constinit const Algorithm kScanRecursiveDoubling{
    "recursive_doubling", Collective::kScan, false, refuse_canonical, build_scan, scan_cost};
constinit const Algorithm kExscanRecursiveDoubling{
    "recursive_doubling", Collective::kExscan, false, refuse_canonical, build_exscan, exscan_cost};

}  // namespace unisono::algorithms
