// The network between two sets of hosts, which is down for good or for a while, and perhaps between
// two others too.
//
// Thread rule: one thread.
#pragma once

#include <algorithm>
#include <vector>

#include "tests/sim/case.h"
#include "tests/sim/random.h"
#include "tests/sim/schedule.h"

namespace unisono::sim {

/// Processes have numbers, of which kRanksOfHost after each other are on one host.
class Partition {
 public:
  /// Both outlive it.
  Partition(const Schedule& schedule, Random& random) : schedule_(schedule), random_(random) {}

  /// After it what was lost has been sent again.
  static constexpr Duration kSentAgain = std::chrono::milliseconds(400);

  void begin(const Fault& fault) {
    cuts_.push_back({fault, fault.is_for_ever() ? kNever : schedule_.now() + fault.lasts});
    began_ = std::min(began_, schedule_.now());
    ends_ = std::min(ends_, cuts_.back().ends);
  }
  /// The first; kNever: none has, or does.
  TimePoint began() const { return began_; }
  TimePoint ends() const { return ends_; }
  /// The network went down before.
  bool comes_again() const { return cuts_.size() > 1; }
  bool separates(int one, int other) const {
    return std::any_of(cuts_.begin(), cuts_.end(), [&](const Cut& cut) {
      return is_inside(cut.fault, one) != is_inside(cut.fault, other);
    });
  }
  /// When what `from` sends to `to` gets there at the earliest; kNever: not. What was lost is sent
  /// again soon after the network is back.
  TimePoint passes_at(int from, int to) {
    TimePoint passes{};
    for (const auto& [fault, ends] : cuts_) {
      const bool is_from_inside = is_inside(fault, from);
      if (is_from_inside == is_inside(fault, to) || (fault.is_one_way && is_from_inside)) continue;
      if (ends == kNever) return kNever;
      if (ends > schedule_.now()) passes = std::max(passes, ends + random_.up_to(kSentAgain));
    }
    return passes;
  }

 private:
  struct Cut {
    Fault fault;
    TimePoint ends;  // kNever: not
  };

  const Schedule& schedule_;
  Random& random_;
  std::vector<Cut> cuts_;
  TimePoint began_ = kNever, ends_ = kNever;
};

}  // namespace unisono::sim
