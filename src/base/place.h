// Where in its host a rank runs: what its processors have in common. Values only; any thread.
#pragma once

namespace unisono {

/// Numbers are the host's; equal ones are the same thing. -1: its processors lie in several, or the
/// system does not tell.
struct Place {
  int cache = -1;  ///< third-level cache, by the first processor that it serves
  int node = -1;   ///< NUMA node

  bool operator==(const Place&) const = default;
};

}  // namespace unisono
