// Multiples, totals and comparisons of traffic reports. Pure functions; safe from any thread.
#pragma once

#include <cstdint>
#include <span>

#include "unisono/traffic.h"

namespace unisono::train::comparison {

TrafficReport times(TrafficReport report, std::uint64_t factor);
/// Of one of `steps`, rounded down.
TrafficReport per_step(TrafficReport report, std::uint64_t steps);
/// Calls, messages and bytes, by collective and by peer. A peer that only one has counts as
/// nothing.
bool are_equal(TrafficReport a, TrafficReport b);

/// Over all collectives.
Traffic total(const TrafficReport& report);
/// Of all ranks together, in one kind of collective or in all.
std::uint64_t bytes_sent(std::span<const TrafficReport> reports, Collective collective);
std::uint64_t bytes_sent(std::span<const TrafficReport> reports);

}  // namespace unisono::train::comparison
