// Folds any number of ranks onto a power of two: of the first 2 * extra ranks the odd ones hand
// their vector to the even rank below and wait for the result. The others keep their rank order,
// and each stands for a run of neighbouring ranks. A value; safe from any thread.
#pragma once

#include "algorithms/rank_math.h"

namespace unisono::algorithms {

struct Folding {
  int participants = 1;  ///< the largest power of two up to the number of ranks
  int extra = 0;         ///< ranks beyond it
  int index = 0;         ///< of this rank among the participants; -1: it sits out
  Rank partner = -1;     ///< the rank folded onto this one, or that this one is folded onto

  Folding(int ranks, Rank rank) {
    participants = power_of_two_floor(ranks);
    extra = ranks - participants;
    const bool folds = rank < 2 * extra;
    if (folds) partner = rank ^ 1;
    index = !folds ? rank - extra : rank % 2 == 0 ? rank / 2 : -1;
  }

  bool sits_out() const { return index < 0; }
  Rank rank_of(int participant) const {
    return participant < extra ? 2 * participant : participant + extra;
  }
  int rounds() const { return floor_log2(participants); }
};

}  // namespace unisono::algorithms
