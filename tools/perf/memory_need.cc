#include "tools/perf/memory_need.h"

#include <fmt/format.h>

#include "tools/common/sizes.h"

namespace unisono::perf {

Status check_memory(const MemoryNeed& need, double physical, double granted) {
  const bool is_granted_less = granted > 0 && granted < physical;
  const double there = is_granted_less ? granted : physical;
  const double wanted = static_cast<double>(need.arena_bytes) * need.ranks * need.kinds;
  if (wanted < 0.8 * there) return {};
  return Status(
      ErrorCode::kOutOfResources,
      fmt::format("the buffers of {} need {} of the {} that {}; take a smaller --maxbytes, "
                  "fewer ranks{} or --mode hot",
                  tools::counted(need.ranks, "rank", "ranks"), tools::format_bytes_rounded(wanted),
                  tools::format_bytes_rounded(there),
                  is_granted_less ? "the control group grants" : "the machine has",
                  need.kinds > 1 ? ", one kind of --buffers" : ""));
}

}  // namespace unisono::perf
