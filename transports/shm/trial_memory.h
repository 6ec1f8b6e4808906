// The part of the segment by which trials of this job begin with what earlier jobs have learned on
// the host, and by which this job's trials are told to the next.
//
// Thread rule: any thread of any rank; what is known is constant once the ranks have met.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/trial_facts.h"
#include "transports/shm/trial_times.h"

namespace unisono::shm {

/// Both ways' times in one word, the first way's in the lower half: the rings of two ranks note
/// what they find of one size at the same time, and either's times stay whole.
using TimesOfTwo = std::atomic<std::uint64_t>;

/// As TrialFacts. What several ranks try is told by the last one.
struct LearnedTrials {
  CallTimes calls;  ///< word by word: the members of a group find the same
  std::array<TimesOfTwo, kMessageSizes> messages;
  std::array<TimesOfTwo, kPieceSizes> pieces;
};

struct TrialMemory {
  TrialFacts known;           ///< before this job
  LearnedTrials learned;      ///< since
  HostFacts host;             ///< known, or measured when the ranks met; constant since
  std::uint32_t cores;        ///< that the ranks may use together; 0: not known
  std::int64_t measuring_ns;  ///< for how long at most they measure `host` when they meet
};

/// What is known from before is tried again after this part of the calls, messages or pieces for
/// which an outcome of this job's own holds: the machine may have changed since.
inline constexpr std::uint32_t kKnownDivisor = 4;

/// The way to begin with.
template <std::size_t kWays>
std::size_t first_way(const WayTimes<kWays>& known) {
  return has_times(known) ? fastest_way(known) : 0;
}

/// Puts the outcome of trials where the next job finds it.
template <std::size_t kWays>
void note(WayTimes<kWays>& learned, const WayTimes<kWays>& times) {
  for (std::size_t way = 0; way < kWays; ++way) {
    std::atomic_ref<std::uint32_t>(learned[way]).store(times[way], std::memory_order_relaxed);
  }
}
inline void note(TimesOfTwo& learned, const WayTimes<2>& times) {
  learned.store(std::uint64_t{times[1]} << 32 | times[0], std::memory_order_relaxed);
}

inline void read_times(WayTimes<kTriedPaths.size()>& told, WayTimes<kTriedPaths.size()>& times) {
  for (std::size_t way = 0; way < times.size(); ++way) {
    times[way] = std::atomic_ref<std::uint32_t>(told[way]).load(std::memory_order_relaxed);
  }
}
inline void read_times(const TimesOfTwo& told, WayTimes<2>& times) {
  const std::uint64_t both = told.load(std::memory_order_relaxed);
  times = {static_cast<std::uint32_t>(both), static_cast<std::uint32_t>(both >> 32)};
}

/// What this job's ranks have learned so far.
inline TrialFacts learned_by(TrialMemory& memory) {
  TrialFacts facts{};
  for_each_pair(facts, memory.learned, [](auto& times, auto& told) { read_times(told, times); });
  if (!memory.known.host.are_known()) facts.host = memory.host;
  return facts;
}

}  // namespace unisono::shm
