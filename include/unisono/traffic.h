// What a communicator has moved, by collective and by peer: for charts, comparisons and tests.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "unisono/types.h"

namespace unisono __attribute__((visibility("default"))) {

  /// Payload only: no headers, announcements or acknowledgements. A byte that a peer pulls out of
  /// this rank's memory counts as sent by this rank and received by the peer.
  struct Traffic {
    std::uint64_t messages_sent = 0, bytes_sent = 0;
    std::uint64_t messages_received = 0, bytes_received = 0;
  };

  struct TrafficReport {
    /// Calls finished and their traffic, indexed by static_cast<std::size_t>(Collective).
    std::array<std::uint64_t, kCollectiveCount> calls{};
    std::array<Traffic, kCollectiveCount> by_collective{};
    /// One entry per rank of the communicator: what went to it and came from it.
    std::vector<Traffic> by_peer;
  };

}  // namespace )
