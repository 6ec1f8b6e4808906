// Whether a standby takes the arbiter's place, and who is missing then. It does once its own rank
// has come to it: one whose own rank still hears the arbiter refuses those that do not. No sockets,
// no clock of its own; the loop of the standby's arbiter owns it.
#pragma once

#include <set>
#include <vector>

#include "base/clock.h"
#include "base/grace_periods.h"
#include "unisono/types.h"

namespace unisono::rendezvous {

class Succession {
 public:
  /// `silence`: as RendezvousPoint::silence.
  Succession(Rank self, int size, std::chrono::milliseconds silence = {})
      : self_(self), size_(size), come_within_(grace::succession_time(silence)) {}

  void on_come(Rank rank, TimePoint now);
  /// Its connection closed before it had an answer.
  void on_withdrawn(Rank rank) { came_.erase(rank); }
  /// Dead, or left: it is not waited for.
  void on_gone(Rank rank) { gone_.insert(rank); }

  bool has_come(Rank rank) const { return came_.count(rank) > 0; }
  bool has_taken_over() const { return has_come(self_); }
  /// Those that have come are to be told that the arbiter lives.
  bool refuses(TimePoint now) const { return !has_taken_over() && now >= refuses_at_; }
  /// They were told.
  void on_refused();
  /// Ranks that have not come in time, once.
  std::vector<Rank> take_missing(TimePoint now);
  /// The time that they have.
  Duration come_within() const { return come_within_; }
  const std::set<Rank>& came() const { return came_; }
  /// When the answers above may change; kNever while nothing is waited for.
  TimePoint next_due() const { return has_taken_over() ? missing_at_ : refuses_at_; }

 private:
  const Rank self_;
  const int size_;
  const Duration come_within_;
  std::set<Rank> came_, gone_;
  TimePoint refuses_at_ = kNever;
  TimePoint missing_at_ = kNever;
};

}  // namespace unisono::rendezvous
