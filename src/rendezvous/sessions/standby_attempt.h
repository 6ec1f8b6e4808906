// One attempt to come to a standby that may hold the arbiter now: which of its places is tried,
// what counts as an answer, and when there is none. No sockets, no clock: standby_dial has these,
// tests/sim a simulated network.
//
// Thread rule: one thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/clock.h"
#include "rendezvous/failure/standby.h"
#include "rendezvous/messages/control_messages.h"

namespace unisono::rendezvous {

/// A connection to one of a standby's places at a time.
class StandbyLine {
 public:
  virtual ~StandbyLine() = default;
  /// kPending: converse() goes on; kAbsent: nobody listens there; or kUnreachable.
  virtual DialOutcome open(std::size_t place) = 0;
  /// Goes on with the conversation. kAbsent or kUnreachable: nobody has taken the connection;
  /// kFailed: somebody has, and ended it without an answer; else kPending or the answer.
  virtual DialOutcome converse() = 0;
  virtual void close() = 0;
};

/// kFailed where it is none.
DialOutcome answer_in(MessageType said);

class StandbyAttempt {
 public:
  /// After a standby had no place for one more connection, or could not be reached.
  static constexpr Duration kTurnedAwayPause = std::chrono::milliseconds(10);

  /// To `standby`, which has so many places, in the order in which they are tried.
  StandbyAttempt(Rank standby, Rank self, std::size_t places, TimePoint now);

  Rank standby() const { return standby_; }
  DialOutcome advance(StandbyLine& line, TimePoint now);
  /// At once until it has begun.
  TimePoint next_due() const { return is_open_ ? due_ : std::min(due_, opens_at_); }

 private:
  DialOutcome try_again(TimePoint now);

  const Rank standby_;
  const std::size_t places_;
  const TimePoint due_;
  const TimePoint reached_by_;     // else it is passed over
  std::size_t place_ = 0;          // that is tried, or next
  bool may_be_elsewhere_ = false;  // at a place before that cannot be reached now
  TimePoint opens_at_ = TimePoint::min();
  bool is_open_ = false;
};

}  // namespace unisono::rendezvous
