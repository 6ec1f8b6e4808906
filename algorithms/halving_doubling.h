// All-reduce by a butterfly that halves vectors and doubles them again: the part that its
// algorithms share, and the doubling for others. Pure; safe from any thread.
#pragma once

#include "algorithms/algorithm.h"
#include "algorithms/folding.h"
#include "plan/plan_builder.h"

namespace unisono::algorithms {

/// Of two participants that hold the same blocks, the upper one keeps the upper half.
struct HalvingRound {
  int peer = 0;
  bool upper = false;
};

/// Who meets in a round; a pure function of the participants, of which there is a power of two.
using HalvingRounds = HalvingRound (*)(int participant, int round, int participants);

/// The participant that holds block `first` of the output gathers all of them: who meets in a round
/// exchanges all it has, the last round first.
void gather_doubles(plan::PlanBuilder& builder, const plan::PlanRequest& request,
                    const Folding& folding, HalvingRounds rounds, int first);

/// log2 rounds that halve and as many that double, in the opposite order. Ranks beyond a power of
/// two are folded onto their neighbours: two rounds and one vector more.
plan::Plan halve_and_double(const plan::PlanRequest& request, std::string_view name,
                            HalvingRounds rounds);
Cost cost_of_halving_and_doubling(int ranks, int chunks, std::size_t bytes);

}  // namespace unisono::algorithms
