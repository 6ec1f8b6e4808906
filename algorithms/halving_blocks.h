// Reduce-scatter by a butterfly of a power of two ranks: who meets exchanges halves of the blocks
// that both still hold. Pure; safe from any thread.
#pragma once

#include <string_view>

#include "plan/plan.h"

namespace unisono::algorithms {

struct HalvingOrder {
  /// The block that this rank ends with, whose bits from the highest on say which half it keeps.
  int kept = 0;
  /// Who ends with this rank's block: where it is another rank one more round brings blocks home.
  Rank holder = 0;
  Rank (*peer)(Rank rank, int round, int ranks) = nullptr;
};

plan::Plan halve_blocks(const plan::PlanRequest& request, std::string_view name,
                        const HalvingOrder& order);

}  // namespace unisono::algorithms
