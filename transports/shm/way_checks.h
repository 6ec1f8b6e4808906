// When a way that trials have chosen is checked, because the machine may have changed: a virtual
// processor moves to a core from which lines come four times as late, or a neighbour takes up the
// memory's rate. Some calls are timed every so often; where those by the chosen way take so much
// longer than in the trials, or so much less, or another way takes clearly less now, trials are due
// at once. The next check comes after twice as many calls, up to a quarter of those after which all
// is tried anyway, so that checks, and trials for which times that wander ask, take up few calls.
//
// Thread rule: one thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace unisono::shm {

/// Calls of which the median is what a check finds.
inline constexpr std::size_t kCheckCalls = 3;

class WayChecks {
 public:
  WayChecks() = default;
  /// A check after so many calls; all is tried after `until_trials`. A time has changed where it is
  /// more than `percent` of the other one: more than calls differ that are tried together.
  WayChecks(std::uint32_t every, std::uint32_t until_trials, std::uint32_t percent)
      : every_(every), most_(std::max(every, until_trials / 4)), percent_(percent) {}

  /// Calls until the next check.
  std::uint32_t every() const { return every_; }
  /// Whether trials are due, because the way takes `time` where it took `known`, and another takes
  /// `other`; 0: not measured.
  bool ask(std::uint64_t time, std::uint64_t known, std::uint64_t other = 0) {
    every_ = std::min(2 * every_, most_);
    return is_more(time, known, percent_) || is_more(known, time, percent_) ||
           is_more(time, other, kBetterPercent);
  }

 private:
  static constexpr std::uint64_t kBetterPercent = 150;  // calls of a row may be of other sizes

  static bool is_more(std::uint64_t time, std::uint64_t than, std::uint64_t percent) {
    return than != 0 && 100 * time > percent * than;
  }

  std::uint32_t every_ = 0, most_ = 0;  // calls
  std::uint32_t percent_ = 0;
};

}  // namespace unisono::shm
