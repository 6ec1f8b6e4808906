// See unproven_peers.h.
#include "base/unproven_peers.h"

#include <map>
#include <tuple>

namespace unisono {

std::size_t least_promising(std::span<const UnprovenPeer> peers) {
  std::map<std::string_view, int> places;
  for (const UnprovenPeer& peer : peers) ++places[peer.source];
  const auto blame = [&](const UnprovenPeer& peer) {
    return std::tuple(!peer.greeted, places[peer.source], peer.stalled);
  };
  std::size_t chosen = kNobody;
  for (std::size_t i = 0; i < peers.size(); ++i) {
    if (peers[i].stalled < unproven_turn(peers[i].greeted)) continue;
    if (chosen == kNobody || blame(peers[i]) > blame(peers[chosen])) chosen = i;
  }
  return chosen;
}

}  // namespace unisono
