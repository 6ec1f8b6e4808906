// Scan and exscan, linear: a chain from rank 0 up; every rank adds its own and passes it on.
//
//   round 0   0 -x0-> 1   round 1   1 -x0+x1-> 2   round 2   2 -x0+x1+x2-> 3
//
// Rounds N - 1 per chunk; each rank sends its bytes once: `chunks` pipelines.
#include "algorithms/cost_paths.h"
#include "algorithms/entries.h"
#include "algorithms/message_parts.h"
#include "algorithms/requirements.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {
namespace {

using plan::ChunkRange;

plan::Plan build_scan(const plan::PlanRequest& request) {
  plan::PlanBuilder builder(request, "linear", 1, 1);
  const bool is_last = request.rank + 1 == request.ranks;
  const ChunkRange input = builder.input(0);
  const ChunkRange output = builder.output(0);
  if (request.rank == 0) {
    if (!is_last) send_parts(builder, 1, input, request.chunks);
    builder.copy(output, input);
    return std::move(builder).finish();
  }
  for (std::uint32_t c = 0; c < input.count; ++c) {
    builder.receive_reduce(request.rank - 1, part(output, c), part(input, c), true);
    if (!is_last) builder.send(request.rank + 1, part(output, c));
  }
  return std::move(builder).finish();
}

// What comes in is the result; what goes out, that and our own, is made in scratch.
plan::Plan build_exscan(const plan::PlanRequest& request) {
  plan::PlanBuilder builder(request, "linear", 1, 1);
  const bool is_last = request.rank + 1 == request.ranks;
  const ChunkRange input = builder.input(0);
  const ChunkRange output = builder.output(0);
  if (request.rank == 0) {
    if (!is_last) send_parts(builder, 1, input, request.chunks);
    return std::move(builder).finish();
  }
  const ChunkRange sums = is_last ? input : builder.add_scratch(input);
  for (std::uint32_t c = 0; c < input.count; ++c) {
    builder.copy(part(sums, c), part(input, c));
    builder.receive(request.rank - 1, part(output, c));
    if (is_last) continue;
    builder.reduce(part(sums, c), part(output, c), true);
    builder.send(request.rank + 1, part(sums, c));
  }
  return std::move(builder).finish();
}

Cost scan_cost(int ranks, int chunks, std::size_t bytes) {
  const double once = ranks > 1 ? static_cast<double>(bytes) : 0;
  return with_chain_path({.rounds = ranks - 1, .bytes_sent = once, .bytes_reduced = once}, ranks,
                         chunks, bytes);
}

Cost exscan_cost(int ranks, int chunks, std::size_t bytes) {
  const double whole = static_cast<double>(bytes);
  return with_chain_path({.rounds = ranks - 1,
                          .bytes_sent = ranks > 1 ? whole : 0,
                          .bytes_reduced = ranks > 2 ? whole : 0},
                         ranks, chunks, bytes);
}

}  // namespace

constinit const Algorithm kScanLinear{"linear",         Collective::kScan, false,
                                      refuse_canonical, build_scan,        scan_cost};
constinit const Algorithm kExscanLinear{"linear",         Collective::kExscan, false,
                                        refuse_canonical, build_exscan,        exscan_cost};

}  // namespace unisono::algorithms
