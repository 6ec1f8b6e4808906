// Copies rotate over one block's two halves so that no copy finds what it reads in the cache.
#include "tools/perf/device_floor.h"

#include <algorithm>
#include <vector>

#include "unisono/types.h"

namespace unisono::perf {
namespace {

constexpr std::size_t kCopyBytesMax = std::size_t{1} << 30;
constexpr int kWarmUps = 3, kCopies = 21;

}  // namespace

double measure_copy_rate(DeviceBuffers& device) {
  const std::size_t bytes = std::min(kCopyBytesMax, device.free_bytes() / 4) / 4096 * 4096;
  if (bytes == 0) return 0;
  std::byte* const from = device.allocate(bytes);
  std::byte* const to = device.allocate(bytes);
  // What is all zeros may move faster than data do.
  device.fill(from, 0x5a, bytes);
  device.fill(to, 0xa5, bytes);
  std::vector<double> times;
  for (int i = -kWarmUps; i < kCopies; ++i) {
    device.finish();
    device.start_clock();
    device.copy(to, from, bytes);
    const double us = device.stop_clock();
    if (i >= 0) times.push_back(us);
  }
  device.release(from);
  device.release(to);
  std::nth_element(times.begin(), times.begin() + kCopies / 2, times.end());
  const double us = std::max(times[kCopies / 2], 1e-3);
  return 2.0 * static_cast<double>(bytes) / (us * 1e-6);
}

double floor_us(const Problem& problem, double bytes_per_second) {
  const double blocks = problem.measured->memory_blocks(problem.ranks, problem.in_place);
  const double bytes = blocks * static_cast<double>(problem.count * size_of(problem.type));
  return bytes_per_second > 0 ? bytes / bytes_per_second * 1e6 : 0;
}

}  // namespace unisono::perf
