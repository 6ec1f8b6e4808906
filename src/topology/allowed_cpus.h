// Which processors the ranks of a host may run on together. Ranks are bound one by one, so no rank
// sees the others' from its own affinity. Values only, safe from any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace unisono::topology {

/// The processors that the calling thread may run on, as a mask in hexadecimal digits: the first
/// digit is processors 0 to 3. Empty where the system does not tell.
std::string read_allowed_cpus();

/// The processors that are in at least one of the masks. What is no hexadecimal digit counts
/// nothing.
std::string join_cpus(std::span<const std::string> masks);

/// The numbers of a mask's processors, in order.
std::vector<int> list_cpus(const std::string& mask);

/// How many processors are in at least one of the masks, capped by the processors' worth of time
/// that the control group grants (0: no cap). At least 1.
int count_cpus(std::span<const std::string> masks, double cpu_quota);

}  // namespace unisono::topology
