// How long the machine was suspended, which Clock does not count.
//
// Thread rule: any thread.
#pragma once

#include <time.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "base/clock.h"

namespace unisono {

/// Since it was booted. Of a virtual machine that its host has paused neither clock knows.
inline Duration time_suspended() {
  timespec awake{}, all{};
  if (::clock_gettime(CLOCK_MONOTONIC, &awake) != 0 || ::clock_gettime(CLOCK_BOOTTIME, &all) != 0) {
    return Duration::zero();
  }
  return std::chrono::seconds(all.tv_sec - awake.tv_sec) +
         std::chrono::nanoseconds(all.tv_nsec - awake.tv_nsec);
}

/// How long the machine was suspended between two looks. One thread at a time.
class Suspensions {
 public:
  /// `suspended`: time_suspended() at this look. Of the first one zero.
  Duration since_last(Duration suspended) {
    const Duration last = std::exchange(last_, suspended).value_or(suspended);
    // It is the difference of two clocks that are read one after the other.
    return std::max(suspended - last, Duration::zero());
  }

 private:
  std::optional<Duration> last_;
};

}  // namespace unisono
