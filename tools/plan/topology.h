// The network that `unisono plan --cost --topology` imagines, from text. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "plan/plan_timing.h"

namespace unisono::tools {

/// What --help says of the text.
inline constexpr const char* kTopologyHelp =
    "nodes=8x4,intra=400G:1us,inter=100G:5us: nodes times ranks of each, rate (bits a second, each "
    "way) and latency of a rank's link within its node, and of the link that all ranks of a node "
    "share to the others. `flat` (no nodes, intra=100G:5us) or `fat-tree` (nodes of 8 ranks, "
    "intra=3600G:1us, inter=400G:5us) may come first; fields after it replace its defaults, as "
    "fat-tree,inter=100G:5us. Copies and reductions cost nothing";

/// What `text` describes for so many ranks. The error says what is wrong and what would be right.
Result<plan::NetworkModel> parse_topology(std::string_view text, int ranks);

/// "8 nodes of 4 ranks, 400 Gb/s and 1 us within, 100 Gb/s and 5 us between".
std::string describe_topology(const plan::NetworkModel& network, int ranks);

/// In what people read: 100 for a link that takes 0.08 ns for each byte.
double gbps_of(double seconds_per_byte);

}  // namespace unisono::tools
