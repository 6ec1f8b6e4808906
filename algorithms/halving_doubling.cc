#include "algorithms/halving_doubling.h"

#include "algorithms/cost_paths.h"
#include "algorithms/message_parts.h"

namespace unisono::algorithms {
namespace {

// Halves blocks 0 .. participants until one is left; returns it. `reduced` says that the values
// lie in the output already.
int reduce_halves(plan::PlanBuilder& builder, const plan::PlanRequest& request,
                  const Folding& folding, HalvingRounds rounds, bool reduced) {
  int first = 0;
  int length = folding.participants;
  for (int k = 0; k < folding.rounds(); ++k) {
    const auto [peer_index, upper] = rounds(folding.index, k, folding.participants);
    const Rank peer = folding.rank_of(peer_index);
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

}  // namespace

void gather_doubles(plan::PlanBuilder& builder, const plan::PlanRequest& request,
                    const Folding& folding, HalvingRounds rounds, int first) {
  int length = 1;
  for (int k = folding.rounds() - 1; k >= 0; --k) {
    const Rank peer = folding.rank_of(rounds(folding.index, k, folding.participants).peer);
    send_parts(builder, peer, builder.output(first, length), request.chunks);
    receive_parts(builder, peer, builder.output(first ^ length, length), request.chunks);
    first &= ~length;
    length *= 2;
  }
}

plan::Plan halve_and_double(const plan::PlanRequest& request, std::string_view name,
                            HalvingRounds rounds) {
  const Folding folding(request.ranks, request.rank);
  const int blocks = folding.participants;
  plan::PlanBuilder builder(request, name, blocks, blocks);
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
  const int own = reduce_halves(builder, request, folding, rounds, has_partner);
  gather_doubles(builder, request, folding, rounds, own);
  if (has_partner) {
    send_parts(builder, folding.partner, builder.output(0, blocks), request.chunks);
  }
  return std::move(builder).finish();
}

Cost cost_of_halving_and_doubling(int ranks, int chunks, std::size_t bytes) {
  const int participants = power_of_two_floor(ranks);
  const int folded = participants == ranks ? 0 : 1;
  const double whole = static_cast<double>(bytes);
  const double share = whole * (participants - 1) / participants;
  return with_sender_path({.rounds = 2 * floor_log2(ranks) + 2 * folded,
                           .bytes_sent = 2 * share + folded * whole,
                           .bytes_reduced = share + folded * whole},
                          2 * (floor_log2(ranks) + folded) * chunks, folded * whole);
}

}  // namespace unisono::algorithms
