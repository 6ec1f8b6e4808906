#include "transports/shm/cold_memory.h"

#include <chrono>

#include "base/clock.h"

namespace unisono::shm {
namespace {

// Most of these must come slowly: one may have been late for another reason.
constexpr int kLines = 3;
constexpr int kSlowLines = 2;

// The clock waits for reads before it. Where it does not, no memory is cold.
Duration time_of_reading(const volatile std::byte& line) {
  const TimePoint begin = Clock::now();
  [[maybe_unused]] const std::byte read = line;
  return Clock::now() - begin;
}

bool comes_late(std::span<const std::byte> memory, const HostFacts& host) {
  if (memory.empty() || host.waits[kLineWait] == 0) return false;
  const auto two_handed_over = 2 * std::chrono::nanoseconds(host.waits[kLineWait]);
  int slow = 0;
  for (int line = 0; line < kLines && slow < kSlowLines; ++line) {
    const std::size_t place = memory.size() / kLines * static_cast<std::size_t>(line);
    if (time_of_reading(memory[place]) > two_handed_over) ++slow;
  }
  return slow == kSlowLines;
}

}  // namespace

bool ColdMemory::has(std::span<const std::byte> place, const HostFacts& host) {
  const bool is_cold = place.data() != last_ && comes_late(place, host);
  last_ = is_cold ? place.data() : nullptr;
  return is_cold;
}

}  // namespace unisono::shm
