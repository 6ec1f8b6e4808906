#include "rendezvous/sessions/standby_attempt.h"

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
      due_(standby == self ? kNever : now + grace::kStandbyAnswer) {}

DialOutcome StandbyAttempt::advance(StandbyLine& line, TimePoint now) {
  if (now >= due_) return DialOutcome::kFailed;
  if (!is_open_ && now < opens_at_) return DialOutcome::kPending;
  for (; place_ < places_; ++place_) {
    if (!is_open_) is_open_ = line.open(place_);
    if (!is_open_) continue;
    const DialOutcome outcome = line.converse();
    if (outcome != DialOutcome::kAbsent && outcome != DialOutcome::kFailed) return outcome;
    line.close();
    is_open_ = false;
    if (outcome == DialOutcome::kAbsent) continue;
    // Somebody listens, and had no place for one more.
    opens_at_ = now + kTurnedAwayPause;
    return DialOutcome::kPending;
  }
  return DialOutcome::kAbsent;
}

}  // namespace unisono::rendezvous
