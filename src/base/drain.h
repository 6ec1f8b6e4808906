// How long a rank that leaves its job waits for what it has sent to go out. Time in which it was
// not run hardly counts: peers were stopped with it where the whole job was.
//
// Thread rule: one thread.
#pragma once

#include <algorithm>
#include <chrono>

#include "base/clock.h"

namespace unisono {

class Drain {
 public:
  /// Between two looks so much counts at most.
  static constexpr Duration kLookMax = std::chrono::milliseconds(50);

  /// `is_awaited`: not all communicators had failed; else nobody waits for what was sent.
  Drain(bool is_awaited, TimePoint now)
      : left_(is_awaited ? Duration(std::chrono::seconds(2))
                         : Duration(std::chrono::milliseconds(100))),
        looked_(now) {}

  /// At each look, more often than kLookMax: whether it goes on.
  bool goes_on(TimePoint now) {
    left_ -= std::min(now - looked_, kLookMax);
    looked_ = now;
    return left_ > Duration::zero();
  }
  TimePoint deadline() const { return looked_ + left_; }

 private:
  Duration left_;
  TimePoint looked_;
};

}  // namespace unisono
