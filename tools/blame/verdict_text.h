// A verdict for people. Pure functions; one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "recorder/blame.h"

namespace unisono::blame {

/// "rank 1", "ranks 0, 2 and 3", "ranks 0 to 7 and 9".
std::string name_ranks(std::vector<Rank> ranks);

/// "runs", "held", "ended", "left", "gone", "unknown".
std::string_view name_of_life(const recorder::Witness& witness);

/// The verdict in sentences; the first one names who stopped first, or is missing, and in what.
/// `now_ns`: CLOCK_REALTIME, for how long things last.
std::vector<std::string> sentences_of(const recorder::Verdict& verdict, std::int64_t now_ns);

/// How long ago, "3.2 s"; empty where that is not known.
std::string time_since(std::int64_t then_ns, std::int64_t now_ns);

}  // namespace unisono::blame
