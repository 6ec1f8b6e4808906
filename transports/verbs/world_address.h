// The text by which a rank with verbs publishes how it is reached:
//   verbs1;<network>,<network>...;<address of its stream transport>
// A network is what a port can talk with: its link layer, of RoCE version and address family, and
// its partition, "rocev2-ipv4:7fff" or "ib:1"; "ib:1-limited" hears full members only. Any other
// text is the plain address of a rank without verbs. Values only; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace unisono::verbs {

inline constexpr std::string_view kLimited = "-limited";

struct WorldAddress {
  std::vector<std::string> networks;  ///< of its ports; none: a rank without verbs
  std::string side;                   ///< of its stream transport
};

std::string world_address_text(const WorldAddress& address);
/// kRendezvous for one of another version, or with a network of no name.
Result<WorldAddress> parse_world_address(std::string_view text);

/// Whether two ranks reach each other by queue pairs: the same on both sides.
bool have_common(const std::vector<std::string>& networks, const std::vector<std::string>& others);

}  // namespace unisono::verbs
