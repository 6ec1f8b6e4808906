// Binomial negabinary (Bine) butterflies and trees. In round i even ranks meet the rank
// 1, -1, 3, -5, 11, ... further on, odd ones the one as far back, instead of 1, 2, 4, 8, 16:
// partners are a third closer. After i rounds a rank has met, through others, the 2^i ranks of a
// run around it: rank 0 of 8 has met 0 1, then 6 7 0 1, then all.
//
// For powers of two. D. De Sensi et al., "Bine trees: enhancing collective operations by optimizing
// communication locality", SC 2025, arXiv:2508.17311. Pure; safe from any thread.
#pragma once

#include "algorithms/rank_math.h"

namespace unisono::algorithms {

/// How far up the ranks an even rank's peer of this round is: (1 - (-2)^(round + 1)) / 3.
constexpr int bine_distance(int round) {
  const int power = 2 << round;
  return (1 - (round % 2 == 0 ? -power : power)) / 3;
}

constexpr Rank bine_peer(Rank rank, int round, int ranks) {
  const int distance = bine_distance(round);
  return wrap(rank % 2 == 0 ? rank + distance : rank - distance, ranks);
}

/// On which side of each round a rank is, as bits: peers of round i differ in bit i and agree in
/// the bits below. So who meets in round i after halving in all rounds before holds the same half.
/// It is a different number for every rank, 0 for rank 0.
constexpr int bine_sides(Rank rank, int ranks) {
  const int last = floor_log2(ranks) - 1;
  if (last < 0) return 0;
  const int even = wrap(rank % 2 == 0 ? rank : rank - bine_distance(last), ranks);
  return even >> 1 | (rank & 1) << last;
}

/// The rank that is on these sides.
constexpr Rank bine_rank(int sides, int ranks) {
  const int last = floor_log2(ranks) - 1;
  if (last < 0) return 0;
  const int even = (sides << 1) & (ranks - 1);
  return sides >> last == 0 ? even : wrap(even + bine_distance(last), ranks);
}

/// The block that a rank is left with where the sides of the rounds choose halves.
constexpr int bine_block(Rank rank, int ranks) {
  return reverse_bits(bine_sides(rank, ranks), floor_log2(ranks));
}

/// The rank that is left with this block.
constexpr Rank bine_holder(int block, int ranks) {
  return bine_rank(reverse_bits(block, floor_log2(ranks)), ranks);
}

}  // namespace unisono::algorithms
