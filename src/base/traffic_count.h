// Adding `times` equal messages to a TrafficReport. Calls that move nothing to or from a peer leave
// its entry alone.
#pragma once

#include <cstddef>

#include "unisono/traffic.h"

namespace unisono {

inline void count_sent(Collective collective, Rank peer, std::size_t bytes, TrafficReport* report,
                       std::uint64_t times = 1) {
  if (bytes == 0) return;
  for (Traffic* each : {&report->by_collective[static_cast<std::size_t>(collective)],
                        &report->by_peer[static_cast<std::size_t>(peer)]}) {
    each->messages_sent += times;
    each->bytes_sent += bytes * times;
  }
}

inline void count_received(Collective collective, Rank peer, std::size_t bytes,
                           TrafficReport* report, std::uint64_t times = 1) {
  if (bytes == 0) return;
  for (Traffic* each : {&report->by_collective[static_cast<std::size_t>(collective)],
                        &report->by_peer[static_cast<std::size_t>(peer)]}) {
    each->messages_received += times;
    each->bytes_received += bytes * times;
  }
}

}  // namespace unisono
