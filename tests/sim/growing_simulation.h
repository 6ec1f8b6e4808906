// Runs one case of a job that grows: the processes of its first members and of newcomers, the jobs
// that they make of it, and their store; and judges what became of it.
//
// Thread rule: one thread.
#pragma once

#include "tests/sim/simulation.h"

namespace unisono::sim {

Outcome run_growing(const Case& c);

}  // namespace unisono::sim
