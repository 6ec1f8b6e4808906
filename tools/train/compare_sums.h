// Sums, differences and comparisons of traffic reports. Pure functions; safe from any thread.
#pragma once

#include <cstdint>
#include <span>

#include "unisono/traffic.h"

namespace unisono::train::comparison {

TrafficReport plus(TrafficReport a, const TrafficReport& b);
/// What was moved between `before` and `after`.
TrafficReport minus(TrafficReport after, const TrafficReport& before);
TrafficReport times(TrafficReport report, std::uint64_t factor);
/// Calls, messages and bytes, by collective and by peer.
bool are_equal(const TrafficReport& a, const TrafficReport& b);

/// Over all collectives.
Traffic total(const TrafficReport& report);
std::uint64_t total_calls(const TrafficReport& report);
/// Of all ranks together, in one kind of collective or in all.
std::uint64_t bytes_sent(std::span<const TrafficReport> reports, Collective collective);
std::uint64_t bytes_sent(std::span<const TrafficReport> reports);

}  // namespace unisono::train::comparison
