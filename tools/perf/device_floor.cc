#include "tools/perf/device_floor.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <random>
#include <vector>

#include "base/median.h"
#include "unisono/types.h"

namespace unisono::perf {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kCopyBytesMax = std::size_t{1} << 30;
constexpr std::size_t kRandomBytes = std::size_t{4} << 20;
/// A GPU that was idle takes about so long to raise its clocks.
constexpr milliseconds kWarmUp{300};
/// As many repetitions as fit the time, between these bounds.
constexpr std::size_t kTimesMin = 5, kTimesMax = 21;
constexpr milliseconds kBudget{100};
constexpr int kLaunches = 200;

double median_us(DeviceBuffers& device, const std::function<void()>& work) {
  std::vector<double> times;
  const auto end = Clock::now() + kBudget;
  while (times.size() < kTimesMin || (times.size() < kTimesMax && Clock::now() < end)) {
    device.finish();
    device.start_clock();
    work();
    times.push_back(device.stop_clock());
  }
  return std::max(median(times), 1e-3);
}

/// What is all zeros, or all alike, may move faster than data do.
void fill_randomly(DeviceBuffers& device, std::byte* memory, std::size_t bytes) {
  std::vector<std::uint64_t> words(std::min(kRandomBytes, bytes) / sizeof(std::uint64_t));
  std::mt19937_64 generator(1);
  for (std::uint64_t& word : words) word = generator();
  std::size_t filled = words.size() * sizeof(std::uint64_t);
  device.copy(memory, words.data(), filled);
  while (filled < bytes) {
    const std::size_t part = std::min(filled, bytes - filled);
    device.copy(memory + filled, memory, part);
    filled += part;
  }
  device.finish();
}

void warm_up(DeviceBuffers& device, const std::function<void()>& work) {
  const auto end = Clock::now() + kWarmUp;
  do {
    work();
    device.finish();
  } while (Clock::now() < end);
}

void measure_copies(DeviceBuffers& device, std::size_t bytes, Floor& floor) {
  std::byte* const from = device.allocate(bytes);
  std::byte* const to = device.allocate(bytes);
  fill_randomly(device, from, bytes);
  const auto copy = [&] { device.copy(to, from, bytes); };
  const auto move = [&] { device.move(to, from, bytes); };
  warm_up(device, copy);
  const auto rate = [&](double us) { return 2.0 * static_cast<double>(bytes) / (us * 1e-6); };
  floor.driver_rate = rate(median_us(device, copy));
  floor.kernel_rate = rate(median_us(device, move));
  device.release(from);
  device.release(to);
}

}  // namespace

Floor measure_floor(DeviceBuffers& device) {
  Floor floor;
  const std::size_t bytes = std::min(kCopyBytesMax, device.free_bytes() / 4) / 4096 * 4096;
  if (bytes != 0) measure_copies(device, bytes, floor);
  floor.launch_us = median_us(device,
                              [&] {
                                for (int i = 0; i < kLaunches; ++i) device.launch_empty();
                              }) /
                    kLaunches;
  return floor;
}

double floor_us(const Problem& problem, double bytes_per_second) {
  const double blocks = problem.measured->memory_blocks(problem.ranks, problem.in_place);
  const double bytes = blocks * static_cast<double>(problem.count * size_of(problem.type));
  return bytes_per_second > 0 ? bytes / bytes_per_second * 1e6 : 0;
}

}  // namespace unisono::perf
