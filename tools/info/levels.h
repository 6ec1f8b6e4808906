// The levels of this machine, and how calls of some ranks would go in them (native/levels.h). Reads
// the machine by hwloc; one thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "config/config.h"
#include "unisono/types.h"

namespace unisono::info {

/// "2 NUMA nodes of 8 cores, 4 third-level caches of 4 cores"; uneven ones as "of 8, 4 cores".
std::string describe_levels();
/// The cores of each node and cache.
nlohmann::ordered_json json_of_levels();
/// Whether calls of it go in levels where there are some.
bool has_levels(Collective collective);
/// How large all_reduce and reduce calls of as many ranks go, bound as `unisono run` binds them.
std::string explain_levels(const Config& config, int ranks);

}  // namespace unisono::info
