// The least time that a collective between ranks of one GPU can take: every byte that must be read
// is read once, every byte that must be written is written once, at the rate of the best copy.
#pragma once

#include <cstddef>

#include "tools/perf/cases.h"
#include "tools/perf/device_buffers.h"

namespace unisono::perf {

/// What a device does when nothing but copies of random data is asked of it. Bytes per second
/// through its memory count those read and those written. 0: not measured.
struct Floor {
  double driver_rate = 0;  ///< of the driver's copies
  double kernel_rate = 0;  ///< of copies by the library's own kernel
  double launch_us = 0;    ///< of an empty kernel, one launched behind the other
  double rate() const { return driver_rate > kernel_rate ? driver_rate : kernel_rate; }
};

/// Medians by the device's clock, of copies much larger than its cache, once its clocks are up.
/// Rates of 0 where there is no room for two blocks.
Floor measure_floor(DeviceBuffers& device);

/// In microseconds, of all ranks together; `bytes_per_second` is the copy rate. 0: moves nothing.
double floor_us(const Problem& problem, double bytes_per_second);

}  // namespace unisono::perf
