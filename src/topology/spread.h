// Over how much of the machine some processors are spread, and which of its parts they lie in: two
// that share a cache hand lines over many times as fast as two of different sockets. Values only;
// safe from any thread.
#pragma once

#include <string>

#include "base/place.h"

namespace unisono::topology {

struct Spread {
  int caches = 0;  ///< third-level caches; 0: the system does not tell, as of the nodes
  int nodes = 0;   ///< NUMA nodes

  bool operator==(const Spread&) const = default;
};

/// Of a mask as read_allowed_cpus() makes it. Reads a small file for each cache and node, in the
/// folders of `system`.
Spread read_spread(const std::string& mask, const std::string& system = "/sys/devices/system");

/// What the processors of such a mask have in common: all of them in one cache, in one node. Of the
/// same files.
Place read_place(const std::string& mask, const std::string& system = "/sys/devices/system");

}  // namespace unisono::topology
