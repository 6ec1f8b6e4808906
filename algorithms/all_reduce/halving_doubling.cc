// All-reduce, recursive halving and doubling (Rabenseifner): halves are exchanged and reduced with
// rank r ^ 1, quarters with r ^ 2, ...; then the way back gathers. Blocks a b c d on 4 ranks:
//
//   round 0   0 -cd-> 1   1 -ab-> 0   2 -cd-> 3   3 -ab-> 2
//   round 1   0 -b-> 2    2 -a-> 0    1 -d-> 3    3 -c-> 1     now 0 owns a, 2 b, 1 c, 3 d
//   round 2   0 -a-> 2    2 -b-> 0    1 -c-> 3    3 -d-> 1
//   round 3   0 -ab-> 1   1 -cd-> 0   2 -ab-> 3   3 -cd-> 2
//
// Rounds 2 log2 N; each rank sends 2 (N - 1) / N of its bytes. Neighbours merge first, hence rank
// order and, at powers of two, the canonical tree. At other N the ranks beyond the power of two
// are folded onto their neighbours: two rounds and one vector more.
// R. Rabenseifner, "Optimization of collective reduction operations", ICCS 2004.
#include "algorithms/entries.h"
#include "algorithms/folding.h"
#include "algorithms/message_parts.h"
#include "algorithms/requirements.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {
namespace {

// Halves blocks 0 .. participants until one is left; returns it. `reduced` says that the values
// lie in the output already.
int reduce_halves(plan::PlanBuilder& builder, const plan::PlanRequest& request,
                  const Folding& folding, bool reduced) {
  int first = 0;
  int length = folding.participants;
  for (int k = 0; k < folding.rounds(); ++k) {
    const bool upper = (folding.index >> k & 1) != 0;
    const Rank peer = folding.rank_of(folding.index ^ (1 << k));
    length /= 2;
    const int keep = upper ? first + length : first;
    const int give = upper ? first : first + length;
    const auto source = [&](int block) {
      return reduced ? builder.output(block, length) : builder.input(block, length);
    };
    send_parts(builder, peer, source(give), request.chunks);
    receive_reduce_parts(builder, peer, builder.output(keep, length), source(keep), upper,
                         request.chunks);
    first = keep;
    reduced = true;
  }
  return first;
}

void gather_doubles(plan::PlanBuilder& builder, const plan::PlanRequest& request,
                    const Folding& folding, int first) {
  int length = 1;
  for (int k = folding.rounds() - 1; k >= 0; --k) {
    const Rank peer = folding.rank_of(folding.index ^ (1 << k));
    send_parts(builder, peer, builder.output(first, length), request.chunks);
    receive_parts(builder, peer, builder.output(first ^ length, length), request.chunks);
    first &= ~length;
    length *= 2;
  }
}

plan::Plan build(const plan::PlanRequest& request) {
  const Folding folding(request.ranks, request.rank);
  const int blocks = folding.participants;
  plan::PlanBuilder builder(request, "halving_doubling", blocks, blocks);
  const bool has_partner = folding.partner >= 0;
  if (folding.sits_out()) {
    send_parts(builder, folding.partner, builder.input(0, blocks), request.chunks);
    receive_parts(builder, folding.partner, builder.output(0, blocks), request.chunks);
    return std::move(builder).finish();
  }
  if (request.ranks == 1) builder.copy(builder.output(0), builder.input(0));
  if (has_partner) {
    receive_reduce_parts(builder, folding.partner, builder.output(0, blocks),
                         builder.input(0, blocks), false, request.chunks);
  }
  gather_doubles(builder, request, folding, reduce_halves(builder, request, folding, has_partner));
  if (has_partner) {
    send_parts(builder, folding.partner, builder.output(0, blocks), request.chunks);
  }
  return std::move(builder).finish();
}

Cost cost(int ranks, int, std::size_t bytes) {
  const int participants = power_of_two_floor(ranks);
  const int folded = participants == ranks ? 0 : 1;
  const double whole = static_cast<double>(bytes);
  const double share = whole * (participants - 1) / participants;
  return {.rounds = 2 * floor_log2(ranks) + 2 * folded,
          .bytes_sent = 2 * share + folded * whole,
          .bytes_reduced = share + folded * whole};
}

}  // namespace

constinit const Algorithm kAllReduceHalvingDoubling{
    "halving_doubling", Collective::kAllReduce, true, need_power_of_two_for_canonical, build, cost};

}  // namespace unisono::algorithms
