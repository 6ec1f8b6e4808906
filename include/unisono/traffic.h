// What a communicator has moved, by collective and by peer: for charts, comparisons and tests.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "unisono/types.h"

namespace unisono {

/// Payload only: no headers, announcements or acknowledgements. A byte that a peer pulls out of
/// this rank's memory counts as sent by this rank and received by the peer.
struct Traffic {
  std::uint64_t messages_sent = 0, bytes_sent = 0;
  std::uint64_t messages_received = 0, bytes_received = 0;

  Traffic& operator+=(const Traffic& more) {
    messages_sent += more.messages_sent;
    bytes_sent += more.bytes_sent;
    messages_received += more.messages_received;
    bytes_received += more.bytes_received;
    return *this;
  }
  Traffic& operator-=(const Traffic& less) {
    messages_sent -= less.messages_sent;
    bytes_sent -= less.bytes_sent;
    messages_received -= less.messages_received;
    bytes_received -= less.bytes_received;
    return *this;
  }
  bool operator==(const Traffic&) const = default;
};

struct TrafficReport {
  /// Calls finished and their traffic, indexed by static_cast<std::size_t>(Collective).
  std::array<std::uint64_t, kCollectiveCount> calls{};
  std::array<Traffic, kCollectiveCount> by_collective{};
  /// One entry per rank of the communicator: what went to it and came from it.
  std::vector<Traffic> by_peer;

  /// Of several communicators, or of several spans of time. Peers that only `more` has are added.
  TrafficReport& operator+=(const TrafficReport& more) {
    for (std::size_t c = 0; c < calls.size(); ++c) {
      calls[c] += more.calls[c];
      by_collective[c] += more.by_collective[c];
    }
    by_peer.resize(std::max(by_peer.size(), more.by_peer.size()));
    for (std::size_t p = 0; p < more.by_peer.size(); ++p) by_peer[p] += more.by_peer[p];
    return *this;
  }
  /// What was moved since `before`, an earlier report of the same.
  TrafficReport& operator-=(const TrafficReport& before) {
    for (std::size_t c = 0; c < calls.size(); ++c) {
      calls[c] -= before.calls[c];
      by_collective[c] -= before.by_collective[c];
    }
    by_peer.resize(std::max(by_peer.size(), before.by_peer.size()));
    for (std::size_t p = 0; p < before.by_peer.size(); ++p) by_peer[p] -= before.by_peer[p];
    return *this;
  }
  bool operator==(const TrafficReport&) const = default;
};

inline TrafficReport operator+(TrafficReport a, const TrafficReport& b) { return a += b; }
inline TrafficReport operator-(TrafficReport after, const TrafficReport& before) {
  return after -= before;
}

}  // namespace unisono
