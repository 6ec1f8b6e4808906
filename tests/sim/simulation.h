// Runs one case: all ranks of a job and its arbiter in one thread and in virtual time, and judges
// what became of it.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>

#include "tests/sim/case.h"

namespace unisono::sim {

struct Outcome {
  std::string wrong;  ///< empty: nothing was
  std::uint64_t steps = 0;
  Duration took{};        ///< in virtual time
  int calls_done = 0;     ///< collectives, of all ranks
  int messages_done = 0;  ///< sends and receives
  int parts_made = 0;     ///< by splits, of all ranks
  int ranks_failed = 0;   ///< have seen a failure
  int ranks_shrunk = 0;   ///< have gone on with the survivors
  int ranks_grown = 0;    ///< are in a job with newcomers in the end
};

Outcome run(const Case& c);

}  // namespace unisono::sim
