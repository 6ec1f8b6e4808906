// The part of the segment by which trials of this job begin with what earlier jobs have learned on
// the host, and by which this job's trials are told to the next.
//
// Thread rule: any thread of any rank; what is known is constant once the ranks have met.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/trial_facts.h"
#include "transports/shm/trial_times.h"

namespace unisono::shm {

struct TrialMemory {
  TrialFacts known;      ///< before this job
  TrialFacts learned;    ///< since, word by word; what several ranks try is told by the last one
  std::uint32_t is_off;  ///< not 0: nothing is tried, and what is taken first stays
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

/// What this job's ranks have learned so far.
inline TrialFacts learned_by(TrialMemory& memory) {
  TrialFacts facts{};
  for_each_pair(facts, memory.learned, [](auto& times, auto& told) {
    for (std::size_t way = 0; way < times.size(); ++way) {
      times[way] = std::atomic_ref<std::uint32_t>(told[way]).load(std::memory_order_relaxed);
    }
  });
  return facts;
}

}  // namespace unisono::shm
