#include "tests/sim/control_client.h"

#include <algorithm>

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
      prober_(silence),
      session_(members, self, "sim", silence, *this, now()) {}

void ControlClient::report_lasting(std::string bytes) {
  session_.report_lasting(std::move(bytes), now());
}

void ControlClient::report_timeout(const rendezvous::WaitMessage& wait) {
  session_.report_timeout(wait, now());
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
  if (now() >= gone_at_) {
    gone_at_ = now() + kGoodbyeTime;
    if (session_.is_with_own_arbiter() || std::exchange(tells_standbys_, true)) {
      session_.end();
    } else {
      session_.say_goodbye_to_standbys(now());
    }
  }
  if (!session_.has_left()) return;
  give_up();
  close();
}

void ControlClient::on_message(int connection, std::string_view bytes) {
  if (session_.has_left()) return;
  session_.on_wake(now());
  const Message message{type_of(bytes), body_of(bytes)};
  if (dial_ && connection == dial_->connection) {
    dial_->heard = answer_in(message.type);
  } else if (connection == connection_ && session_.is_connected()) {
    session_.on_heard(now());
    session_.on_message(message, now());
  }
  advance_dial();
}

void ControlClient::on_closed(int connection) {
  if (session_.has_left()) return;
  session_.on_wake(now());
  if (dial_ && connection == dial_->connection) {
    dial_->heard = DialOutcome::kFailed;
  } else if (connection == connection_ && session_.is_connected()) {
    session_.on_closed(now());
  }
  advance_dial();
}

void ControlClient::on_probe_answer(Rank from, const ProbeNonce& nonce) {
  prober_.on_answer(from, nonce);
  serve_probes();
}

void ControlClient::probe(Rank rank, TimePoint now) {
  ProbeNonce nonce{};
  nonce[0] = ++probes_;
  prober_.begin(rank, nonce, now);
}

void ControlClient::serve_probes() {
  if (session_.has_left()) return;
  for (const auto& [rank, nonce] : prober_.take_questions(now())) network_.probe(rank, nonce);
  for (const auto& [rank, is_reached] : prober_.take_outcomes(now())) {
    session_.on_probed(rank, is_reached);
  }
}

void ControlClient::on_wake() {
  if (session_.is_lost()) return;
  if (now() >= gone_at_) close_if_left();
  if (session_.has_left()) return;
  session_.on_wake(now());
  serve_probes();
  session_.look_for_silence(now());
  advance_dial();
  session_.beat(now());
}

TimePoint ControlClient::next_due() const {
  if (session_.is_lost()) return kNever;
  const TimePoint due = std::min({prober_.next_due(), session_.next_due(), gone_at_});
  return dial_ ? std::min(due, dial_->attempt.next_due()) : due;
}

// ---- Attempts to come to a standby --------------------------------------------------------------

// Where there are two addresses nobody listens at the first.
DialOutcome ControlClient::Dial::open(std::size_t place) {
  connection = place == last_place_ ? network_.dial(attempt.standby(), greeting_) : -1;
  heard = DialOutcome::kPending;
  if (connection >= 0) return heard;
  return connection == ControlNetwork::kNoWay ? DialOutcome::kUnreachable : DialOutcome::kAbsent;
}

void ControlClient::dial(Rank standby, const RejoinMessage& greeting, TimePoint now) {
  give_up();
  const std::size_t places = standby == self_ || (standby + self_) % 2 == 0 ? 1 : 2;
  dial_.emplace(network_, standby, self_, places, greeting, now);
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

void ControlClient::advance_dial() {
  while (dial_) {
    const DialOutcome outcome = dial_->attempt.advance(*dial_, now());
    if (outcome == DialOutcome::kPending) break;
    session_.on_dialled(outcome, now());
  }
  close_if_left();
}

}  // namespace unisono::sim
