#include "engine/idle.h"

#include <sys/resource.h>

#include <algorithm>
#include <climits>
#include <utility>

namespace unisono {
namespace {

// What was found counts for this long, and each time that it is found again soon for twice as long.
constexpr auto kHoldsAtFirst = std::chrono::milliseconds(100);
constexpr auto kHoldsAtMost = std::chrono::milliseconds(800);
constexpr auto kAutoSleepAfter = std::chrono::milliseconds(200);
// Peers that run mostly answer in that time.
constexpr auto kSpinBeforeSleep = std::chrono::microseconds(15);

// How often the scheduler has taken the core from the calling thread; where it does not say, more
// often each time.
long preemptions() {
  rusage usage{};
  static thread_local long unknown = 0;
  return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : ++unknown;
}

}  // namespace

IdlePolicy IdlePolicy::choose(std::string_view mode, int threads, int cores) {
  if (mode == "spin") return {.spins = INT_MAX};
  if (mode == "yield") return {};
  if (mode == "sleep") return on_a_taken_core();
  // A peer that is not running cannot answer: with more threads than cores every look that fails
  // gives the core away. Otherwise looking costs nobody anything for a while.
  if (threads > cores) return {.sleep_after = kAutoSleepAfter};
  return {.spins = 20'000, .spins_per_yield = 128, .sleep_after = kAutoSleepAfter};
}

IdlePolicy IdlePolicy::on_a_taken_core() {
  return {.spins = 300, .spin_for = kSpinBeforeSleep, .sleep_after = Duration::zero()};
}

// A scheduler takes a core away after 1 to 4 ms; ranks that share it and have work give it back
// earlier. An interrupt takes microseconds too: then the kernel has counted no switch.
Contention::Who Contention::who_ran(Duration took, bool expected) {
  if (took >= std::chrono::milliseconds(3)) return Who::kRival;
  if (expected || took < std::chrono::microseconds(2)) return Who::kNobody;
  static thread_local long known = preemptions();
  const long before = std::exchange(known, preemptions());
  return known != before ? Who::kCompany : Who::kNobody;
}

void Contention::note(Who found, TimePoint now) {
  if (found > who()) {
    const bool was_soon = now < until_ + kHoldsAtFirst;
    holds_ = was_soon ? std::min<Duration>(2 * holds_, kHoldsAtMost) : kHoldsAtFirst;
    until_ = now + holds_;
    who_.store(found, std::memory_order_relaxed);
  } else if (who() != Who::kNobody && now >= until_) {
    who_.store(Who::kNobody, std::memory_order_relaxed);
  }
}

// The processes divide the cores that ranks leave free.
IdleChoice::IdleChoice(std::string_view mode, const HostSeats& seats)
    : roomy_(IdlePolicy::choose(mode, seats.ranks, seats.cores)),
      crowded_(IdlePolicy::choose(mode, seats.cores + 1, seats.cores)),
      taken_(mode == "auto" ? IdlePolicy::on_a_taken_core() : roomy_),
      room_(seats.here + std::max(seats.cores - seats.ranks, 0) / std::max(seats.processes, 1)) {}

}  // namespace unisono
