// Looks for seeds whose case goes wrong, and makes such a case as small as it can.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tests/sim/simulation.h"

namespace unisono::sim {

/// The smallest case found that goes wrong as `c` does, in so many tries at most.
Case shrunk(Case c, const std::function<bool(const Case&)>& goes_wrong, int tries_max);

/// The command that runs the seed again.
std::string replay_of(std::uint64_t seed, const Limits& limits);
/// Everything that is known of a seed that went wrong: what is wrong, how to replay it, and the
/// smallest case that fails too.
std::string report_of(std::uint64_t seed, const Limits& limits, const Outcome& outcome);

}  // namespace unisono::sim
