// The memory that a control group grants. Containers often show all memory of the machine and grant
// a part of it. Reads /proc and /sys once per call; safe from any thread.
#pragma once

#include <string>

namespace unisono::topology {

/// The tightest limit of this process's control groups, in bytes; may be beyond what the machine
/// has. 0: no limit, or none that can be read.
double read_memory_limit();

/// The same from other places, as cpu_quota_of().
double memory_limit_of(const std::string& membership, const std::string& mount);

}  // namespace unisono::topology
