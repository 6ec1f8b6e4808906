// Monotonic time. Deadlines are TimePoints; time reaches the code that needs it as an argument.
#pragma once

#include <chrono>

namespace unisono {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Duration = Clock::duration;
inline constexpr TimePoint kNever = TimePoint::max();

/// `wait` after `now`; kNever where that is beyond what a TimePoint holds.
constexpr TimePoint later(TimePoint now, std::chrono::milliseconds wait) {
  const auto room = std::chrono::duration_cast<std::chrono::milliseconds>(kNever - now);
  return wait < room ? now + wait : kNever;
}

}  // namespace unisono
