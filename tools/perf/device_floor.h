// The least time that a collective between ranks of one GPU can take: every byte that must be read
// is read once, every byte that must be written is written once, at the rate of a plain copy.
#pragma once

#include <cstddef>

#include "tools/perf/cases.h"
#include "tools/perf/device_buffers.h"

namespace unisono::perf {

/// Bytes per second through the device's memory, those read and those written, of copies much
/// larger than its cache: the median of several, by the device's clock. 0 where there is no room
/// for two blocks.
double measure_copy_rate(DeviceBuffers& device);

/// In microseconds, of all ranks together; `bytes_per_second` is the copy rate. 0: moves nothing.
double floor_us(const Problem& problem, double bytes_per_second);

}  // namespace unisono::perf
