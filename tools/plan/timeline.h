// Draws the messages of a call as arrows between columns of ranks. Pure.
#pragma once

#include <string>
#include <vector>

#include "plan/plan_timing.h"

namespace unisono::tools {

/// Ranks that fit beside one another on a screen.
inline constexpr int kTimelineRanksMax = 16;

/// One group of lines a round; arrows that do not cross share a line. An arrow is labelled with
/// the target's chunks, "s" for scratch, "+" for a reduction.
std::string draw_timeline(const std::vector<plan::TimedMessage>& messages, int ranks);

}  // namespace unisono::tools
