// Whatever a caller takes for ever as what clocks can add.
#pragma once

#include <algorithm>
#include <chrono>

namespace unisono_torch {

inline constexpr std::chrono::milliseconds kLongestTimeout = std::chrono::hours(365 * 24);

inline std::chrono::milliseconds clamped(std::chrono::milliseconds timeout) {
  return std::min(timeout, kLongestTimeout);
}

inline std::chrono::milliseconds milliseconds_of(double seconds) {
  const std::chrono::duration<double, std::milli> timeout(1000 * seconds);
  if (timeout > kLongestTimeout) return kLongestTimeout;
  return std::chrono::duration_cast<std::chrono::milliseconds>(timeout);
}

}  // namespace unisono_torch
