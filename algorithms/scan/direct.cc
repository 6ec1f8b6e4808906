// Scan and exscan, direct: every rank sends to all higher ranks, each of which reduces what it got
// by the canonical tree, T(0, r + 1) or for exscan T(0, r), or at once.
//
//   round 0   0 -> 1 2 3   1 -> 2 3   2 -> 3
//
// One round; rank 0 sends N - 1 times its bytes: for few ranks and small vectors.
#include "algorithms/cost_paths.h"
#include "algorithms/direct_phases.h"
#include "algorithms/entries.h"
#include "algorithms/message_parts.h"
#include "algorithms/requirements.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {
namespace {

plan::Plan build(const plan::PlanRequest& request) {
  plan::PlanBuilder builder(request, "direct", 1, 1);
  for (Rank peer = request.rank + 1; peer < request.ranks; ++peer) {
    send_parts(builder, peer, builder.input(0), request.chunks);
  }
  const int operands = request.rank + (request.collective == Collective::kScan ? 1 : 0);
  if (operands > 0) {
    receive_and_reduce(builder, request, operands, builder.input(0), builder.output(0));
  }
  return std::move(builder).finish();
}

Cost scan_cost(int ranks, int chunks, std::size_t bytes) {
  const double all = static_cast<double>(bytes) * (ranks - 1);
  return with_sender_path({.rounds = ranks > 1 ? 1 : 0, .bytes_sent = all, .bytes_reduced = all},
                          (ranks - 1) * chunks);
}

Cost exscan_cost(int ranks, int chunks, std::size_t bytes) {
  Cost cost = scan_cost(ranks, chunks, bytes);
  cost.bytes_reduced = ranks > 2 ? static_cast<double>(bytes) * (ranks - 2) : 0;
  return cost;
}

}  // namespace

constinit const Algorithm kScanDirect{"direct", Collective::kScan, true, refuse_nothing,
                                      build,    scan_cost};
constinit const Algorithm kExscanDirect{"direct", Collective::kExscan, true, refuse_nothing,
                                        build,    exscan_cost};

}  // namespace unisono::algorithms
