// The processors this process may use, where they lie, and how ranks are placed on them. hwloc
// reads the facts; this header does not need it. Plain values, safe from any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/place.h"
#include "base/result.h"

namespace unisono::topology {

/// One physical core, with those of its hardware threads that this process may use.
struct Core {
  std::vector<int> cpus;  ///< operating system numbers, at least one
  int numa_node = 0;      ///< operating system number of the nearest memory
  int cache = -1;         ///< the first processor of its third-level cache; -1: unknown
};

struct Processors {
  /// Allowed by affinity and control group, in hwloc's logical order: neighbours in this list are
  /// neighbours in the machine, and one NUMA node's cores follow each other.
  std::vector<Core> cores;
  int numa_node_count = 1;   ///< nodes that have one of these cores
  std::size_t l3_bytes = 0;  ///< of one last-level cache; 0: unknown
  double cpu_quota = 0;      ///< processors' worth of time granted; 0: no limit

  /// Cores that can really be busy at once: the quota counts too. At least 1.
  int usable_core_count() const;
};

/// Takes some milliseconds: read once and keep.
Result<Processors> read_processors();
/// Of a machine as hwloc's synthetic descriptions have them, such as "numa:2 l3:2 core:4 pu:1".
/// kInvalidArgument where hwloc does not understand it.
Result<Processors> made_up_processors(const std::string& description);

/// How wide a rank's place is.
enum class Width {
  kCore,   ///< one core each
  kShare,  ///< an equal, contiguous part of all cores: for ranks that run threads of their own
};

/// The cores (indices into `cores`) of local rank `rank` of `size`, spread over the NUMA nodes
/// because equal parts of the list are. Empty, meaning leave it to the operating system, when
/// there are more ranks than cores or the arguments make no sense.
std::vector<int> recommended_binding(const Processors& processors, int rank, int size,
                                     Width width = Width::kCore);

/// What these cores (indices into `cores`) have in common, as read_place() (spread.h) would find of
/// a rank that is bound to them; nothing of none.
Place place_of(const Processors& processors, std::span<const int> core_indices);

/// Restricts the calling thread, and what it starts later, to these cores.
Status bind_this_thread(const Processors& processors, std::span<const int> core_indices);

}  // namespace unisono::topology
