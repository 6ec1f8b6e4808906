// Monotonic time. Deadlines are TimePoints; time reaches the code that needs it as an argument.
#pragma once

#include <algorithm>
#include <chrono>

namespace unisono {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Duration = Clock::duration;
inline constexpr TimePoint kNever = TimePoint::max();

/// `wait` after `now`, or `now` where that is negative; kNever where it is more than what a
/// TimePoint holds, counted from the clock's epoch where `now` is before that.
constexpr TimePoint later(TimePoint now, std::chrono::milliseconds wait) {
  using std::chrono::milliseconds;
  const Duration room = Duration::max() - std::max(now.time_since_epoch(), Duration::zero());
  if (wait >= std::chrono::duration_cast<milliseconds>(room)) return kNever;
  return now + std::max(wait, milliseconds::zero());
}

}  // namespace unisono
