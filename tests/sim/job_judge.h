// The verdict on a simulation of a job that does not grow: what ranks have heard of failures is
// what docs/failures.md says, and those that may go on do.
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "tests/sim/case.h"
#include "tests/sim/seat.h"

namespace unisono::sim {

/// A job that is over.
struct JobFacts {
  const Case& c;
  const std::vector<Seat>& seats;  ///< by rank
  const std::vector<Rank>& standbys;
  TimePoint began;
  bool isolates;       ///< all links of some rank broke
  bool may_tell_ends;  ///< of these, since there were enough
};

/// What is wrong; empty: nothing.
std::string judge_job(const JobFacts& facts);

}  // namespace unisono::sim
