#include "tests/sim/control_client.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/grace_periods.h"
#include "base/keep_latest.h"
#include "rendezvous/standby_dial.h"
#include "tests/sim/control_text.h"

namespace unisono::sim {

using namespace rendezvous;

namespace {

// As control_connection.cc and standby_dial.cc have them.
constexpr std::size_t kReportsMax = 64;
constexpr Duration kReportLasts = grace::kDecision;
constexpr int kRefusalsMax = 3;
constexpr Duration kSeekTime = std::chrono::seconds(10);

}  // namespace

ControlClient::ControlClient(const World& world, int connection, std::chrono::milliseconds silence,
                             ControlLinks links, TimePoint now)
    : world_(world),
      connection_(connection),
      links_(std::move(links)),
      silence_(silence, now),
      record_(world) {
  silence_.on_heard(holder_, now);
}

// ---- What the rank says -------------------------------------------------------------------------

void ControlClient::report(std::string bytes) {
  if (is_connected()) links_.send(connection_, std::move(bytes));
}

void ControlClient::keep(Report report, TimePoint now) {
  keep_latest(std::move(report), kReportsMax, &reports_);
  drop_old_reports(now);
}

void ControlClient::drop_old_reports(TimePoint now) {
  while (!reports_.empty() && reports_.front().when + kReportLasts + silence_.limit() < now) {
    reports_.pop_front();
  }
}

void ControlClient::report_lasting(std::string bytes, TimePoint now) {
  keep({now, bytes}, now);
  report(std::move(bytes));
}

void ControlClient::report_broken_link(Rank peer, const Status& cause, TimePoint now) {
  if (state_ == State::kAlone) return deliver_broken_link(peer, cause);
  std::string bytes = encode(BrokenLinkMessage{peer, cause.message(), cause.code()});
  keep({now, bytes, peer, cause}, now);
  report(std::move(bytes));
}

void ControlClient::report_waiting(const WaitMessage& wait) {
  std::string bytes = encode_wait(MessageType::kWaiting, wait, world_.size);
  std::erase_if(waits_, [&](const auto& known) { return known.first == wait.communicator; });
  keep_latest(std::pair(wait.communicator, bytes), kWaitsMax, &waits_);
  report(std::move(bytes));
}

void ControlClient::say_shrink(const ShrinkMessage& message) {
  shrinks_.on_said(message);
  report(encode_shrink(message, world_.size));
}

void ControlClient::leave() {
  if (state_ == State::kLeft) return;
  report(encode(MessageType::kGoodbye));
  state_ = State::kLeft;
  give_dial_up();
  links_.close(connection_);
}

// ---- What the arbiter says ----------------------------------------------------------------------

void ControlClient::on_message(int connection, std::string_view bytes, TimePoint now) {
  if (state_ == State::kLeft) return;
  silence_.on_wake(now);
  if (dial_ && connection == dial_->connection) return on_answer(bytes, now);
  if (connection != connection_ || !is_connected()) return;
  refusals_ = 0;
  acquit(now);
  take(bytes, now);
}

void ControlClient::on_closed(int connection, TimePoint now) {
  if (state_ == State::kLeft) return;
  silence_.on_wake(now);
  if (dial_ && connection == dial_->connection) {
    dial_->connection = -1;
    dial_->again = now + kTurnedAwayPause;
  } else if (connection == connection_ && is_connected()) {
    lose(now);
  }
}

void ControlClient::take(std::string_view bytes, TimePoint now) {
  const std::string_view body = body_of(bytes);
  switch (type_of(bytes)) {
    case MessageType::kFarewell:
      record_.on_departed(holder_);
      return seek(now);
    case MessageType::kDeparted:
      if (const auto rank = decode_departed(body, world_.size)) record_.on_departed(*rank);
      return;
    case MessageType::kAskWaits:
      news_.asks_for_waits = true;
      return;
    case MessageType::kShrink:
      if (auto word = decode_shrink(body, world_.size)) {
        shrinks_.on_word(*word);
        news_.shrink_words.push_back(std::move(*word));
      }
      return;
    case MessageType::kDecision:
      if (auto decision = decode_decision(body, world_.size)) deliver(std::move(*decision));
      return;
    default:
      return;
  }
}

void ControlClient::deliver(FailureDecision decision) {
  if (!ledger_.admit(decision)) return;
  record_.on_decision(decision);
  news_.decisions.push_back(std::move(decision));
}

void ControlClient::deliver_broken_link(Rank peer, const Status& cause) {
  deliver({ErrorCode::kRankFailed, peer, kEveryCommunicator, 0,
           fmt::format("rank {} is lost: {}", peer, cause.message())});
}

// ---- Where the arbiter is lost ------------------------------------------------------------------

void ControlClient::lose(TimePoint now) {
  suspects_ = false;
  record_.on_dead(holder_);
  deliver({ErrorCode::kRankFailed, holder_, kEveryCommunicator, 0,
           fmt::format("rank {}, which holds the arbiter, died", holder_)});
  seek(now);
}

void ControlClient::suspect(TimePoint now) {
  suspects_ = true;
  record_.on_unreachable(holder_);
  seek(now);
}

void ControlClient::acquit(TimePoint now) {
  silence_.on_heard(holder_, now);
  if (!suspects_) return;
  suspects_ = false;
  give_dial_up();
  record_.on_arbiter();
  state_ = State::kOpen;
}

void ControlClient::depose(Rank successor) {
  if (!suspects_) return;
  const auto silence = silence_.limit();
  report(encode_deposed({successor, silence}));
  suspects_ = false;
  record_.on_dead(holder_);
  deliver({ErrorCode::kRankFailed, holder_, kEveryCommunicator, 0,
           fmt::format("rank {}, which held the arbiter, is silent", holder_)});
}

void ControlClient::on_answer(std::string_view bytes, TimePoint now) {
  switch (type_of(bytes)) {
    case MessageType::kSeated:
      return move_to_standby(now);
    case MessageType::kRefusal:
      return on_refused(now);
    case MessageType::kFarewell:
      record_.on_departed(dial_->standby);
      return seek(now);
    default:
      record_.on_unreachable(dial_->standby);
      return seek(now);
  }
}

void ControlClient::on_refused(TimePoint now) {
  record_.on_unreachable(dial_->standby);
  if (suspects_ && ++refusals_ < kRefusalsMax) {
    acquit(now);
    return silence_.on_heard(holder_, now - silence_.limit() * 5 / 6);
  }
  if (!suspects_ && now < seek_until_) return seek(now);
  suspects_ = false;
  deliver({ErrorCode::kRankFailed, world_.rank, kEveryCommunicator, 0,
           fmt::format("rank {} is cut off: others hear the arbiter", world_.rank)});
  links_.close(connection_);
  go_alone(now);
}

void ControlClient::seek(TimePoint now) {
  give_dial_up();
  if (!suspects_) {
    links_.close(connection_);
    silence_.forget(holder_);
  }
  if (state_ != State::kSeeking) seek_until_ = now + kSeekTime;
  const bool self_last = silence_.was_stopped(now);
  Rank next = record_.next_standby(self_last);
  if (next < 0 && now < seek_until_ && record_.forgive()) {
    if (suspects_) record_.on_unreachable(holder_);
    next = record_.next_standby(self_last);
  }
  if (next < 0) {
    depose(-1);
    links_.close(connection_);
    return go_alone(now);
  }
  RejoinMessage greeting = record_.rejoin_message();
  if (suspects_) greeting.dead.push_back(holder_);
  state_ = State::kSeeking;
  dial_.emplace(Dial{next, now + grace::kStandbyAnswer, std::move(greeting)});
  dial(now);
}

void ControlClient::dial(TimePoint now) {
  dial_->connection = links_.dial(dial_->standby, dial_->greeting);
  if (dial_->connection >= 0) return;
  record_.on_absent(dial_->standby);
  seek(now);
}

// Lest a standby that knows of this rank takes it for dead.
void ControlClient::give_dial_up() {
  if (!dial_) return;
  if (dial_->connection >= 0) {
    links_.send(dial_->connection, encode(MessageType::kGiveUp));
    links_.close(dial_->connection);
  }
  dial_.reset();
}

void ControlClient::move_to_standby(TimePoint now) {
  const Rank standby = dial_->standby;
  depose(standby);
  links_.close(connection_);
  connection_ = dial_->connection;
  dial_.reset();
  silence_.forget(holder_);
  holder_ = standby;
  silence_.on_heard(holder_, now);
  record_.on_arbiter();
  state_ = State::kOpen;
  drop_old_reports(now);
  for (const Report& kept : reports_) report(kept.bytes);
  for (const auto& [communicator, bytes] : waits_) report(bytes);
  for (const ShrinkMessage& message : shrinks_.to_repeat()) {
    report(encode_shrink(message, world_.size));
  }
}

void ControlClient::go_alone(TimePoint now) {
  give_dial_up();
  state_ = State::kAlone;
  drop_old_reports(now);
  for (const Report& kept : std::exchange(reports_, {})) {
    if (kept.peer >= 0) deliver_broken_link(kept.peer, kept.cause);
  }
}

void ControlClient::on_wake(TimePoint now) {
  if (is_lost()) return;
  silence_.on_wake(now);
  if (state_ == State::kOpen && !silence_.take_silent(now).empty()) suspect(now);
  if (dial_ && now >= dial_->due) {
    record_.on_unreachable(dial_->standby);
    seek(now);
  } else if (dial_ && dial_->connection < 0 && now >= dial_->again) {
    dial(now);
  }
  if (silence_.take_beat(now)) report(encode(MessageType::kBeat));
}

TimePoint ControlClient::next_due() const {
  if (is_lost()) return kNever;
  if (!dial_) return silence_.next_due();
  const TimePoint dialling =
      dial_->connection < 0 ? std::min(dial_->due, dial_->again) : dial_->due;
  return std::min(dialling, silence_.next_due());
}

}  // namespace unisono::sim
