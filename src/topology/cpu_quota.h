// The CPU time a control group grants, in processors. Containers often show all cores of the
// machine and grant a few. Reads /proc and /sys once per call; safe from any thread.
#pragma once

#include <string>

namespace unisono::topology {

/// The tightest limit of this process's control groups, versions 1 and 2: 1.5 means one and a half
/// processors. 0: no limit, or none that can be read.
double read_cpu_quota();

/// The same from other places, since a test can put no process into a control group without being
/// root: `membership` is the text of /proc/self/cgroup, `mount` what is /sys/fs/cgroup otherwise.
double cpu_quota_of(const std::string& membership, const std::string& mount);

}  // namespace unisono::topology
