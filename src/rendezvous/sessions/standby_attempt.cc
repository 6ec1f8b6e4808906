#include "rendezvous/sessions/standby_attempt.h"

#include <utility>

#include "base/grace_periods.h"

namespace unisono::rendezvous {

DialOutcome answer_in(MessageType said) {
  switch (said) {
    case MessageType::kSeated:
      return DialOutcome::kSeated;
    case MessageType::kRefusal:
      return DialOutcome::kRefused;
    case MessageType::kNotKnown:
      return DialOutcome::kUnknown;
    case MessageType::kFarewell:
      return DialOutcome::kLeft;
    case MessageType::kDeparted:
      return DialOutcome::kNoted;
    case MessageType::kPartEnded:
      return DialOutcome::kEnded;
    default:
      return DialOutcome::kFailed;
  }
}

StandbyAttempt::StandbyAttempt(Rank standby, Rank self, std::size_t places, TimePoint now)
    : standby_(standby),
      places_(places),
      // The arbiter of this process does answer.
      due_(standby == self ? kNever : now + grace::kStandbyAnswer),
      reached_by_(now + grace::kStandbyAnswer) {}

DialOutcome StandbyAttempt::advance(StandbyLine& line, TimePoint now) {
  if (now >= due_) return DialOutcome::kFailed;
  if (!is_open_ && now < opens_at_) return DialOutcome::kPending;
  for (; place_ < places_; ++place_) {
    const DialOutcome opened = is_open_ ? DialOutcome::kPending : line.open(place_);
    is_open_ = opened == DialOutcome::kPending;
    const DialOutcome outcome = is_open_ ? line.converse() : opened;
    const bool is_none = outcome == DialOutcome::kAbsent || outcome == DialOutcome::kUnreachable;
    if (!is_none && outcome != DialOutcome::kFailed) return outcome;
    if (std::exchange(is_open_, false)) line.close();
    // Somebody listens, and had no place for one more.
    if (!is_none) return try_again(now);
    may_be_elsewhere_ = may_be_elsewhere_ || outcome == DialOutcome::kUnreachable;
  }
  if (!may_be_elsewhere_) return DialOutcome::kAbsent;
  if (now >= reached_by_) return DialOutcome::kFailed;
  place_ = 0;
  may_be_elsewhere_ = false;
  return try_again(now);
}

DialOutcome StandbyAttempt::try_again(TimePoint now) {
  opens_at_ = now + kTurnedAwayPause;
  return DialOutcome::kPending;
}

}  // namespace unisono::rendezvous
