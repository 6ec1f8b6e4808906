// From times to rows of the selection table. Pure; values only.
#pragma once

#include <span>
#include <vector>

#include "algorithms/selection.h"
#include "tools/tune/task.h"

namespace unisono::tune {

/// The fastest way for every link, collective and size of `tasks`, neighbours that agree merged.
/// What the default table says stays unless something else is clearly faster: noise must not make
/// rows. The last plan of a collective ends twice above the largest size measured, because its
/// need of scratch memory may grow; the default table decides beyond.
std::vector<algorithms::SelectionRow> best_rows(std::span<const Task> tasks, int ranks,
                                                bool shared_cores);

}  // namespace unisono::tune
