// What limits this process's control groups, versions 1 and 2. Reads small files of /proc and /sys;
// safe from any thread.
#pragma once

#include <string>
#include <string_view>

namespace unisono::topology {

struct ControlGroup {
  std::string folder;  ///< may not exist
  bool is_version_2 = false;

  /// The first line of its file `name`; empty where it cannot be read.
  std::string line_of(const std::string& name) const;
};

inline constexpr const char* kControlGroupMount = "/sys/fs/cgroup";
/// The text of /proc/self/cgroup.
std::string read_group_membership();

/// The smallest limit above 0 that `read` finds in the groups of `controller` ("cpu", "memory")
/// that `membership` names and in those above them, any of which may limit; 0: none.
double tightest_limit(const std::string& membership, const std::string& mount,
                      std::string_view controller, double (*read)(const ControlGroup&));

}  // namespace unisono::topology
