// Ranks and durations as people write them, for the messages of this folder. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "rendezvous/messages/job.h"

namespace unisono::rendezvous {

/// "rank 2", "ranks 2, 5 and 7", "ranks 0, 1, ... and 4080 more"; "no rank" when empty.
std::string ranks_text(const std::vector<Rank>& ranks);

/// "rank 3 (host node1, pid 4242)".
std::string member_text(const Member& member);

/// "30 s", "1.5 s", "250 ms".
std::string duration_text(Duration duration);

/// At most `bytes_max` bytes of `text`; what was cut shows as "...".
std::string shortened(std::string text, std::size_t bytes_max);

}  // namespace unisono::rendezvous
