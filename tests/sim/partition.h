// The network between two sets of hosts, which is down for good or for a while.
//
// Thread rule: one thread.
#pragma once

#include <optional>

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
    fault_ = fault;
    began_ = schedule_.now();
    ends_ = fault.is_for_ever() ? kNever : schedule_.now() + fault.lasts;
  }
  /// kNever: it has not begun, or does not end.
  TimePoint began() const { return began_; }
  TimePoint ends() const { return ends_; }
  bool separates(int one, int other) const {
    return fault_ && is_inside(*fault_, one) != is_inside(*fault_, other);
  }
  /// When what `from` sends to `to` gets there at the earliest; kNever: not. What was lost is sent
  /// again soon after the network is back.
  TimePoint passes_at(int from, int to) {
    if (!separates(from, to) || (fault_->is_one_way && is_inside(*fault_, from))) return {};
    if (ends_ == kNever) return kNever;
    return ends_ <= schedule_.now() ? TimePoint{} : ends_ + random_.up_to(kSentAgain);
  }

 private:
  const Schedule& schedule_;
  Random& random_;
  std::optional<Fault> fault_;
  TimePoint began_ = kNever, ends_ = kNever;
};

}  // namespace unisono::sim
