// Monotonic time. Deadlines are TimePoints; time reaches the code that needs it as an argument.
#pragma once

#include <chrono>

namespace unisono {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Duration = Clock::duration;
inline constexpr TimePoint kNever = TimePoint::max();

}  // namespace unisono
