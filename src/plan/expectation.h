// What the outputs of a collective must hold: the checker's own knowledge of each, which is the
// oracle and repeats no table. Pure; safe from any thread.
#pragma once

#include <cstdint>

#include "plan/plan.h"

namespace unisono::plan {

/// Of an output chunk: the operands of ranks first .. first + count for one chunk of theirs.
struct Expectation {
  Rank first = 0;
  int count = 0;            ///< 0: it may hold anything
  std::uint32_t chunk = 0;  ///< of the input of each
};

Expectation expected(const PlanRequest& request, std::uint32_t output_chunk);

}  // namespace unisono::plan
