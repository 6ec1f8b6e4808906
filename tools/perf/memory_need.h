// Whether the buffers of a run fit. Memory is overcommitted: asking for more than there is would
// end in the middle of it. Pure; any thread.
#pragma once

#include <cstddef>

#include "base/result.h"

namespace unisono::perf {

struct MemoryNeed {
  std::size_t arena_bytes = 0;
  int ranks = 1;  ///< of this host
  int kinds = 1;  ///< of buffers: each has an arena in every rank
};

/// kOutOfResources, with what to do, where they take most of the machine's `physical` memory or of
/// what the control group grants (0: no limit). In bytes.
Status check_memory(const MemoryNeed& need, double physical, double granted);

}  // namespace unisono::perf
