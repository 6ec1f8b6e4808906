// See world_address.h.
#include "transports/verbs/world_address.h"

#include <algorithm>
#include <sstream>

namespace unisono::verbs {
namespace {

constexpr std::string_view kKind = "verbs";
constexpr std::string_view kVersion = "verbs1";

}  // namespace

std::string world_address_text(const WorldAddress& address) {
  std::string text = std::string(kVersion) + ";";
  for (std::size_t i = 0; i < address.networks.size(); ++i) {
    text += (i == 0 ? "" : ",") + address.networks[i];
  }
  return text + ";" + address.side;
}

Result<WorldAddress> parse_world_address(std::string_view text) {
  WorldAddress address;
  if (!text.starts_with(kKind)) {
    address.side = text;
    return address;
  }
  const std::size_t first = text.find(';');
  const std::size_t second = first == std::string_view::npos ? first : text.find(';', first + 1);
  if (second == std::string_view::npos || text.substr(0, first) != kVersion) {
    return Status(ErrorCode::kRendezvous, "its address is not of this version of unisono");
  }
  std::istringstream networks(std::string(text.substr(first + 1, second - first - 1)));
  for (std::string network; std::getline(networks, network, ',');) {
    if (network.empty())
      return Status(ErrorCode::kRendezvous, "its address names an empty network");
    address.networks.push_back(network);
  }
  address.side = text.substr(second + 1);
  return address;
}

bool have_common(const std::vector<std::string>& networks, const std::vector<std::string>& others) {
  const auto partition = [](std::string_view network) {
    return network.ends_with(kLimited) ? network.substr(0, network.size() - kLimited.size())
                                       : network;
  };
  return std::find_first_of(networks.begin(), networks.end(), others.begin(), others.end(),
                            [&](std::string_view a, std::string_view b) {
                              const bool hear = !a.ends_with(kLimited) || !b.ends_with(kLimited);
                              return hear && partition(a) == partition(b);
                            }) != networks.end();
}

}  // namespace unisono::verbs
