// Virtual time: what happens next, and when. Nothing waits, and no clock is read.
//
// Thread rule: one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace unisono::sim {

class Schedule {
 public:
  TimePoint now() const { return now_; }
  std::uint64_t steps() const { return steps_; }

  void at(TimePoint when, std::function<void()> what) {
    events_.push({std::max(when, now_), next_order_++, std::move(what)});
  }
  void in(Duration wait, std::function<void()> what) { at(now_ + wait, std::move(what)); }
  /// The next event, of equal times the one that was scheduled first. False when there is none.
  bool step() {
    if (events_.empty()) return false;
    // Moved out before it runs, for it schedules others.
    std::function<void()> what = std::move(const_cast<Event&>(events_.top()).what);
    now_ = events_.top().when;
    events_.pop();
    ++steps_;
    what();
    return true;
  }

 private:
  struct Event {
    TimePoint when;
    std::uint64_t order;
    std::function<void()> what;
    bool operator<(const Event& other) const {  // the queue's top is the greatest
      return when != other.when ? when > other.when : order > other.order;
    }
  };

  TimePoint now_ = TimePoint{} + std::chrono::hours(1);
  std::uint64_t next_order_ = 0;
  std::uint64_t steps_ = 0;
  std::priority_queue<Event> events_;
};

}  // namespace unisono::sim
