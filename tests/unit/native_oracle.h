// What every collective must deliver, from data that any rank can compute for every other.
#pragma once

#include <string>

#include "native_ranks.h"

namespace unisono::test {

/// Every collective: sends and receives stand behind them.
const std::vector<Collective>& all_collectives();

struct OracleCase {
  Collective collective = Collective::kBarrier;
  std::size_t count = 0;
  Rank root = 0;
  bool in_place = false;
  bool heap = false;         ///< buffers from SharedSegment::allocate
  std::size_t misalign = 0;  ///< bytes by which buffers miss a cache line
};

/// "all_reduce of 7, root 0, in place"
std::string describe(const OracleCase& oracle_case);

/// Runs one call of int32 sums or moves on this rank and checks the result, and that nothing
/// around the output was touched. Element values differ between calls (by rank.sequence).
void run_and_check(TestRank& rank, const OracleCase& oracle_case);

}  // namespace unisono::test
