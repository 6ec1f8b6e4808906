// The settings that all ranks of a job must share, as each rank tells them when the ranks meet.
// Ranks that select differently would wait for ever, so differing ones end the job there, with the
// first line that differs and both ranks' values of it.
//
// Thread rule: any thread.
#pragma once

#include <string>

#include "algorithms/selection.h"
#include "config/config.h"

namespace unisono {

/// "NAME=value" a line. The rows of UNISONO_TUNING's table have a line each, numbered as they
/// follow each other: its path and comments may differ, what it says may not. Rows of a table of
/// more than a few hundred end in one number for all of them, since the arbiter bounds the text.
std::string shared_settings(const Config& config, const algorithms::SelectionTable& selection);

}  // namespace unisono
