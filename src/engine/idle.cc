#include "engine/idle.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <limits>

namespace unisono {
namespace {

constexpr auto kAutoSleepAfter = std::chrono::milliseconds(200);
// Peers that run mostly answer in that time.
constexpr auto kSpinBeforeSleep = std::chrono::microseconds(15);
constexpr int kLooksPerReading = 8;
constexpr std::int64_t kLooksPerProbe = 128;  // a power of two
// What was found counts for this long, and four times as long each time that it is found again
// soon. A rank whose yield took long for once, because a host took the processor away or a rank was
// at its own work, sleeps no longer than that.
constexpr auto kHoldsAtFirst = std::chrono::milliseconds(2);
constexpr auto kHoldsAtMost = std::chrono::milliseconds(800);
constexpr auto kSoon = std::chrono::milliseconds(20);
// A time slice takes 2 to 4 ms, with the ticks that end it. A rank copies or combines for less than
// this before it looks whether others have arrived.
constexpr auto kTimeSlice = std::chrono::milliseconds(2);
constexpr auto kTurnOfARank = std::chrono::microseconds(1500);

// How often the calling thread was made to give its core up, or yielded; 0 where the kernel does
// not count.
long involuntary_switches() {
  rusage usage{};
  return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

}  // namespace

IdlePolicy IdlePolicy::choose(std::string_view mode, int threads, int cores) {
  if (mode == "spin") return {.spins = std::numeric_limits<std::int64_t>::max()};
  if (mode == "yield") return {};
  if (mode == "sleep") return {.sleep_after = Duration::zero()};
  // A peer that is not running cannot answer: with more threads than cores every look that fails
  // gives the core away. Otherwise looking costs nobody anything for a while.
  if (threads > cores) return {.sleep_after = kAutoSleepAfter};
  return {.spins = 20'000, .probes = true, .sleep_after = kAutoSleepAfter};
}

IdlePolicy IdlePolicy::on_a_contended_core() {
  return {.spins = 300, .spin_for = kSpinBeforeSleep, .sleep_after = Duration::zero()};
}

bool Looks::looked(bool moved) {
  has_moved_ = has_moved_ || moved;
  // What moves all the time must not keep the clock from being read.
  const bool reads = !spins() || ++since_reading_ >= kLooksPerReading;
  if (moved) {
    looks_ = 0;
  } else if (looks_ < plan_->spins) {
    ++looks_;
  }
  return reads;
}

void Looks::read(TimePoint now) {
  if (began_ == TimePoint{}) began_ = moved_ = now;
  if (has_moved_) moved_ = now;
  now_ = now;
  since_reading_ = 0;
  has_moved_ = false;
}

Looks::Idling Looks::idling() const {
  if (spins()) {
    const bool probes = plan_->probes && looks_ % kLooksPerProbe == 0;
    return probes ? Idling::kYield : Idling::kRelax;
  }
  return now_ - began_ >= plan_->sleep_after ? Idling::kSleep : Idling::kYield;
}

void Contention::note(Who found, TimePoint now) {
  const Who known = who();
  if (found > known) (found == Who::kHog ? hog_ : sharers_).extend(now);
  const Who left = now < hog_.until       ? Who::kHog
                   : now < sharers_.until ? Who::kSharers
                                          : Who::kNobody;
  if (left != known) who_.store(left, std::memory_order_relaxed);
}

void Contention::Finding::extend(TimePoint now) {
  holds = now < until + kSoon ? std::min<Duration>(4 * holds, kHoldsAtMost) : kHoldsAtFirst;
  until = now + holds;
}

// The processes divide the cores that ranks leave free.
IdleChoice::IdleChoice(std::string_view mode, const HostSeats& seats)
    : roomy_(IdlePolicy::choose(mode, seats.ranks, seats.cores)),
      crowded_(IdlePolicy::choose(mode, seats.cores + 1, seats.cores)),
      contended_(mode == "auto" ? IdlePolicy::on_a_contended_core() : roomy_),
      room_(seats.here + std::max(seats.cores - seats.ranks, 0) / std::max(seats.processes, 1)),
      fair_turn_(
          std::max<Duration>(kTimeSlice, kTurnOfARank * seats.ranks / std::max(seats.cores, 1))),
      adapts_(mode == "auto") {}

IdleChoice::Who IdleChoice::yield(Who known) const {
  if (!adapts_) {
    sched_yield();
    return Who::kNobody;
  }
  // Where sharers are known to be there, only time tells them from others.
  const bool counts = !shares_core(known);
  const long before = counts ? involuntary_switches() : 0;
  const TimePoint began = Clock::now();
  sched_yield();
  const Duration took = Clock::now() - began;
  return who_ran(took, counts && involuntary_switches() != before);
}

IdleChoice::Who IdleChoice::who_ran(Duration took, bool switched) const {
  if (took >= fair_turn_) return Who::kHog;
  return switched ? Who::kSharers : Who::kNobody;
}

}  // namespace unisono
