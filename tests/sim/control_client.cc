#include "tests/sim/control_client.h"

#include <algorithm>

#include "base/grace_periods.h"
#include "rendezvous/standby_dial.h"
#include "tests/sim/control_text.h"

namespace unisono::sim {

using namespace rendezvous;

ControlClient::ControlClient(const std::vector<Member>& members, Rank self, int connection,
                             std::chrono::milliseconds silence, ControlNetwork network,
                             const Schedule& schedule)
    : self_(self),
      connection_(connection),
      network_(std::move(network)),
      schedule_(schedule),
      session_(members, self, "sim", silence, *this, now()) {}

void ControlClient::report_lasting(std::string bytes) {
  session_.report_lasting(std::move(bytes), now());
}

void ControlClient::report_broken_link(Rank peer, const Status& cause) {
  session_.report_broken_link(peer, cause, now());
}

// As ControlConnection::leave(), but that a rank that looks for an arbiter has longer there.
void ControlClient::leave() {
  if (session_.has_left()) return;
  session_.leave();
  gone_at_ = now() + kGoodbyeTime;
  close_if_left();
}

void ControlClient::close_if_left() {
  if (now() >= gone_at_) session_.end();
  if (!session_.has_left()) return;
  give_up();
  close();
}

void ControlClient::on_message(int connection, std::string_view bytes) {
  if (session_.has_left()) return;
  session_.on_wake(now());
  const Message message{type_of(bytes), body_of(bytes)};
  if (dial_ && connection == dial_->connection) {
    switch (message.type) {
      case MessageType::kSeated:
        dial_->outcome = DialOutcome::kSeated;
        break;
      case MessageType::kRefusal:
        dial_->outcome = DialOutcome::kRefused;
        break;
      case MessageType::kFarewell:
        dial_->outcome = DialOutcome::kLeft;
        break;
      default:
        come_again();
    }
  } else if (connection == connection_ && session_.is_connected()) {
    session_.on_heard(now());
    session_.on_message(message, now());
  }
  settle_dial();
}

void ControlClient::on_closed(int connection) {
  if (session_.has_left()) return;
  session_.on_wake(now());
  if (dial_ && connection == dial_->connection) {
    come_again();
  } else if (connection == connection_ && session_.is_connected()) {
    session_.on_closed(now());
  }
  settle_dial();
}

void ControlClient::on_wake() {
  if (session_.is_lost()) return;
  if (now() >= gone_at_) return close_if_left();
  session_.on_wake(now());
  session_.look_for_silence(now());
  if (dial_ && now() >= dial_->due) {
    dial_->outcome = DialOutcome::kFailed;
  } else if (dial_ && dial_->connection < 0 && now() >= dial_->again) {
    connect();
  }
  settle_dial();
  session_.beat(now());
}

TimePoint ControlClient::next_due() const {
  if (session_.is_lost()) return kNever;
  if (!dial_) return std::min(session_.next_due(), gone_at_);
  const TimePoint dialling =
      dial_->connection < 0 ? std::min(dial_->due, dial_->again) : dial_->due;
  return std::min({dialling, session_.next_due(), gone_at_});
}

// ---- Attempts to come to a standby --------------------------------------------------------------

void ControlClient::dial(Rank standby, const RejoinMessage& greeting, TimePoint now) {
  give_up();
  dial_.emplace(Dial{standby, standby == self_ ? kNever : now + grace::kStandbyAnswer, greeting});
  connect();
}

void ControlClient::connect() {
  dial_->connection = network_.dial(dial_->standby, dial_->greeting);
  if (dial_->connection < 0) dial_->outcome = DialOutcome::kAbsent;
}

void ControlClient::come_again() {
  dial_->connection = -1;
  dial_->again = now() + kTurnedAwayPause;
}

void ControlClient::give_up() {
  if (!dial_) return;
  if (dial_->connection >= 0) {
    network_.send(dial_->connection, encode(MessageType::kGiveUp));
    network_.close(dial_->connection);
  }
  dial_.reset();
}

void ControlClient::move() {
  close();
  connection_ = dial_->connection;
  dial_.reset();
}

void ControlClient::settle_dial() {
  while (dial_ && dial_->outcome != DialOutcome::kPending) {
    session_.on_dialled(std::exchange(dial_->outcome, DialOutcome::kPending), now());
  }
  close_if_left();
}

}  // namespace unisono::sim
