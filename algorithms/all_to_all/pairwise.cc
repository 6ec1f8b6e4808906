// All-to-all, pairwise: one exchange after the other, each between two ranks that have nothing
// else under way. With r ^ round at powers of two, else with (round - r) mod N:
//
//   round 1   0 <-> 1   2 <-> 3
//   round 2   0 <-> 2   1 <-> 3
//   round 3   0 <-> 3   1 <-> 2
//
// Rounds N - 1 (N where N is no power of two, each rank resting in one or two); each rank sends
// (N - 1) / N of its bytes: for large blocks. In place the outgoing block goes through scratch.
#include "algorithms/cost_paths.h"
#include "algorithms/entries.h"
#include "algorithms/message_parts.h"
#include "algorithms/rank_math.h"
#include "algorithms/requirements.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {
namespace {

using plan::ChunkRange;
using plan::StepIndex;

// Appends an exchange that begins when the steps `previous` are complete; returns its own last.
struct Exchange {
  StepIndex send = plan::kNoStep;
  StepIndex receive = plan::kNoStep;
};

Exchange exchange(plan::PlanBuilder& builder, Rank peer, const ChunkRange& source,
                  const ChunkRange& target, const Exchange& previous) {
  Exchange last;
  for (std::uint32_t c = 0; c < target.count; ++c) {
    builder.order_after(previous.send);
    builder.order_after(previous.receive);
    last.send = builder.send(peer, part(source, c));
    builder.order_after(previous.send);
    builder.order_after(previous.receive);
    last.receive = builder.receive(peer, part(target, c));
  }
  return last;
}

plan::Plan build(const plan::PlanRequest& request) {
  const int ranks = request.ranks;
  plan::PlanBuilder builder(request, "pairwise", ranks, ranks);
  builder.reserve(static_cast<std::size_t>(3 * ranks) * request.chunks);
  builder.copy(builder.output(request.rank), builder.input(request.rank));
  ChunkRange staged;
  Exchange previous;
  for (int round = 0; round < ranks; ++round) {
    const Rank peer =
        is_power_of_two(ranks) ? request.rank ^ round : wrap(round - request.rank, ranks);
    if (peer == request.rank) continue;
    ChunkRange source = builder.input(peer);
    if (request.in_place) {
      if (staged.count == 0) staged = builder.add_scratch(source);
      builder.copy(staged, source);
      source = staged;
    }
    previous = exchange(builder, peer, source, builder.output(peer), previous);
  }
  return std::move(builder).finish();
}

Cost cost(int ranks, int chunks, std::size_t bytes) {
  const bool rests = ranks > 1 && !is_power_of_two(ranks);
  const double block = static_cast<double>(bytes) / ranks;
  // In a round in which a rank rests its peers don't.
  return with_sender_path(
      {.rounds = ranks - 1 + (rests ? 1 : 0), .bytes_sent = block * (ranks - 1)},
      (ranks - 1) * chunks, rests ? block : 0);
}

}  // namespace

constinit const Algorithm kAllToAllPairwise{
    "pairwise", Collective::kAllToAll, true, refuse_nothing, build, cost};
constinit const Algorithm kAllToAllVPairwise{
    "pairwise", Collective::kAllToAllV, true, refuse_nothing, build, cost};

}  // namespace unisono::algorithms
