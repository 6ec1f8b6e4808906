// A rank of a simulated job, and what becomes of its process.
//
// Thread rule: one thread.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "tests/sim/interleaving.h"
#include "tests/sim/rank.h"

namespace unisono::sim {

struct Seat {
  std::unique_ptr<SimulatedRank> rank;
  bool is_scheduled = false;
  bool is_dead = false;
  bool is_slow = false;
  bool is_missed = false;    // for a while it is not run
  bool wakes_again = false;  // it was woken while it was interrupted
  TimePoint runs_again{};    // kNever: is stopped for ever
  TimePoint gone_at = kNever;
  std::vector<std::pair<TimePoint, TimePoint>> stops{};  // from when until when it was not run
  std::unique_ptr<Interleaving> interleaving{};

  bool is_interrupted() const { return interleaving != nullptr && interleaving->is_interrupted(); }
  bool is_judged() const { return !is_dead && runs_again != kNever; }
  bool is_gone_by(TimePoint when) const { return gone_at <= when; }
  bool has_left_by(TimePoint when) const { return rank->has_left() && is_gone_by(when); }

  void stop_until(TimePoint now, TimePoint until) {
    if (until <= std::max(runs_again, now)) return;
    stops.emplace_back(now, until);
    runs_again = until;
  }
  /// At some time, both included, ...
  bool was_stopped(TimePoint from, TimePoint to) const {
    return std::any_of(stops.begin(), stops.end(),
                       [&](const auto& stop) { return stop.first <= to && stop.second >= from; });
  }
  /// ... or all the time.
  bool was_stopped_throughout(TimePoint from, TimePoint to) const {
    for (const auto& [begin, end] : stops) {
      if (begin <= from && end > from) from = end;
    }
    return from > to;
  }
};

}  // namespace unisono::sim
