#include "topology/memory_limit.h"

#include <cstdlib>

#include "topology/control_groups.h"

namespace unisono::topology {
namespace {

// Version 2 says "max" where there is none, and version 1 a number beyond all memory.
double memory_limit_in(const ControlGroup& group) {
  const char* const name = group.is_version_2 ? "memory.max" : "memory.limit_in_bytes";
  return std::strtod(group.line_of(name).c_str(), nullptr);
}

}  // namespace

double memory_limit_of(const std::string& membership, const std::string& mount) {
  return tightest_limit(membership, mount, "memory", memory_limit_in);
}

double read_memory_limit() { return memory_limit_of(read_group_membership(), kControlGroupMount); }

}  // namespace unisono::topology
