// Over how much of the machine some processors are spread: two that share a cache hand lines over
// many times as fast as two of different sockets. Values only; safe from any thread.
#pragma once

#include <string>

namespace unisono::topology {

struct Spread {
  int caches = 0;  ///< third-level caches; 0: the system does not tell, as of the nodes
  int nodes = 0;   ///< NUMA nodes

  bool operator==(const Spread&) const = default;
};

/// Of a mask as read_allowed_cpus() makes it. Reads a small file for each cache and node, in the
/// folders of `system`.
Spread read_spread(const std::string& mask, const std::string& system = "/sys/devices/system");

}  // namespace unisono::topology
