// How many calls a rank made, of all collectives together.
#pragma once

#include <numeric>

#include "unisono/traffic.h"

namespace unisono::train::comparison {

inline std::uint64_t total_calls(const TrafficReport& report) {
  return std::accumulate(report.calls.begin(), report.calls.end(), std::uint64_t{0});
}

}  // namespace unisono::train::comparison
