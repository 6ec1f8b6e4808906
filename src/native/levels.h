// How the members of a group lie in the host: in domains, the NUMA nodes or third-level caches,
// between which bytes move slower than inside. Reductions of large calls cross between domains once
// per domain, and not once per member (combine_call.h).
//
//   member   0 1 2 3 4 5 6 7     D = 2 domains of d = 4
//   node     0 0 0 0 1 1 1 1
//
//   read across domains in an all_reduce of S bytes
//     in one level    2 d (D - 1) S   inputs by whose part they are, results by all
//     in two levels   D (D - 1) S     partials, by each domain for itself
//
// Domains are contiguous, equal and of a power of two of members, because the canonical tree nests
// over those alone. All members compute the same from the same.
//
// Thread rule: pure.
#pragma once

#include <span>

#include "base/levels_setting.h"
#include "base/place.h"

namespace unisono::native {

struct Levels {
  int domain_ranks = 0;  ///< members of each domain; 0: one level
  LevelsBy by = LevelsBy::kOff;

  bool operator==(const Levels&) const = default;
};

/// Of members in their order. One level where they do not lie in two domains or more of two members
/// or more, or not as above. Of its own accord it makes levels only where these at least halve what
/// crosses (D <= d), and by nodes rather than by caches, since less crosses between fewer domains.
Levels levels_of(std::span<const Place> members, const LevelsSetting& setting);

}  // namespace unisono::native
