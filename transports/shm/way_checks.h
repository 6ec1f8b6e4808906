// When a way that trials have chosen is checked, because the machine may have changed: a virtual
// processor moves to a core from which lines come four times as late, or a neighbour takes up the
// memory's rate. Some calls by it are timed every so often; where they take so much longer than in
// the trials, or so much less, trials are due at once. Where these choose the same way again, times
// wander and trials do not help: the next check comes after twice as many calls.
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
  /// A check after so many calls, and at most after `most`. A time has changed where it is more
  /// than `percent` of the other one: more than calls differ that are tried together.
  WayChecks(std::uint32_t every, std::uint32_t most, std::uint32_t percent)
      : first_(every), every_(every), most_(most), percent_(percent) {}

  /// Calls until the next check.
  std::uint32_t every() const { return every_; }
  /// Whether trials are due, because the way takes `time` where it took `known`; 0: not measured.
  bool ask(std::size_t way, std::uint64_t time, std::uint64_t known) {
    const bool changed = is_more(time, known) || is_more(known, time);
    if (changed) doubted_ = way;
    return changed;
  }
  /// Trials have chosen the way.
  void decided(std::size_t way) {
    every_ = way == doubted_ ? std::min(2 * every_, most_) : first_;
    doubted_ = kNone;
  }

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};

  bool is_more(std::uint64_t time, std::uint64_t than) const {
    return than != 0 && 100 * time > percent_ * than;
  }

  std::uint32_t first_ = 0, every_ = 0, most_ = 0;  // calls
  std::uint32_t percent_ = 0;
  std::size_t doubted_ = kNone;  // which a check has asked to try again
};

}  // namespace unisono::shm
