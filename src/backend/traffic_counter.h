// What a communicator's calls have moved so far.
//
// Thread rule: the engine's lock.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/traffic_count.h"
#include "engine/execution.h"
#include "unisono/traffic.h"

namespace unisono {

class TrafficCounter {
 public:
  explicit TrafficCounter(int members) {
    report_.by_peer.resize(static_cast<std::size_t>(members));
  }

  void count_call(Collective collective, std::uint64_t times = 1) {
    report_.calls[static_cast<std::size_t>(collective)] += times;
  }
  void count_sent(Collective collective, Rank to, std::size_t bytes) {
    unisono::count_sent(collective, to, bytes, &report_);
  }
  void count_received(Collective collective, Rank from, std::size_t bytes) {
    unisono::count_received(collective, from, bytes, &report_);
  }
  void count_plan(Collective collective, const PreparedPlan& plan) {
    for (const PlannedMessage& message : plan.messages) {
      if (message.sent) {
        count_sent(collective, message.peer, message.bytes);
      } else {
        count_received(collective, message.peer, message.bytes);
      }
    }
  }
  TrafficReport& report() { return report_; }
  const TrafficReport& report() const { return report_; }

 private:
  TrafficReport report_;
};

}  // namespace unisono
