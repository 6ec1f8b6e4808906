// Sums and differences of traffic reports. Pure; safe from any thread.
#pragma once

#include "unisono/traffic.h"

namespace unisono::train {

/// Peers that only one of the two has stay as they are.
void add(TrafficReport& sum, const TrafficReport& part);
void subtract(TrafficReport& now, const TrafficReport& before);

}  // namespace unisono::train
