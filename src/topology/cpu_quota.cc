#include "topology/cpu_quota.h"

#include <cstdlib>
#include <sstream>

#include "topology/control_groups.h"

namespace unisono::topology {
namespace {

double ratio(double quota, double period) { return quota > 0 && period > 0 ? quota / period : 0; }

// Version 2: "max 100000" or "150000 100000". Version 1: two files; a quota of -1 is none.
double quota_of(const ControlGroup& group) {
  if (!group.is_version_2) {
    return ratio(std::strtod(group.line_of("cpu.cfs_quota_us").c_str(), nullptr),
                 std::strtod(group.line_of("cpu.cfs_period_us").c_str(), nullptr));
  }
  std::istringstream text(group.line_of("cpu.max"));
  double quota = 0;
  double period = 0;
  return text >> quota >> period ? ratio(quota, period) : 0;
}

}  // namespace

double cpu_quota_of(const std::string& membership, const std::string& mount) {
  return tightest_limit(membership, mount, "cpu", quota_of);
}

double read_cpu_quota() { return cpu_quota_of(read_group_membership(), kControlGroupMount); }

}  // namespace unisono::topology
