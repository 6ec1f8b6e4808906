// How times of trials are kept and compared: rates, so that trials of unequal size may be compared,
// and 0 where nothing was measured.
//
// Thread rule: pure.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace unisono::shm {

/// Nanoseconds at the same rate for a MiB, at most two seconds; 0 only where `took` is none.
inline std::uint32_t time_of_a_mib(std::size_t bytes, Duration took) {
  if (took <= Duration::zero()) return 0;
  const double time = std::chrono::duration<double, std::nano>(took).count();
  const double of_a_mib = time * 1048576.0 / static_cast<double>(bytes);
  return static_cast<std::uint32_t>(std::clamp(of_a_mib, 1.0, 2e9));
}

/// The less of two times that were measured, or the one that was.
inline std::uint32_t lesser_time(std::uint32_t a, std::uint32_t b) {
  return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b);
}

/// Whether `time` is so much less than `other` that it is no noise: by more than 4 percent.
inline bool is_clearly_less(std::uint64_t time, std::uint64_t other) {
  return time < other - other * 4 / 100;
}

/// Whether so much more time was taken in a few trials that longer rows would not change that.
inline bool is_far_behind(std::uint64_t time, std::uint64_t least) { return time > least * 3 / 2; }

/// The way of the least time, or the first where none is clearly less than that one's. A way that
/// was not tried is none; 0 where none was.
template <std::size_t kWays>
std::size_t fastest_way(const std::array<std::uint32_t, kWays>& times) {
  std::size_t first = 0;
  while (first + 1 < kWays && times[first] == 0) ++first;
  if (times[first] == 0) return 0;
  std::size_t best = first;
  for (std::size_t way = first + 1; way < kWays; ++way) {
    const std::uint32_t time = times[way];
    if (time != 0 && time < times[best] && is_clearly_less(time, times[first])) best = way;
  }
  return best;
}

}  // namespace unisono::shm
