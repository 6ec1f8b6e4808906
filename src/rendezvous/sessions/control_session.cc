#include "rendezvous/sessions/control_session.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/grace_periods.h"
#include "base/keep_latest.h"
#include "rendezvous/messages/rank_text.h"

namespace unisono::rendezvous {
namespace {

// More at a time is nothing that an arbiter asks.
constexpr std::size_t kQuestionsMax = 4096;
constexpr std::size_t kShrinkWordsMax = 4096;
// Lasting reports, of which a rank makes one for each call that fails.
constexpr std::size_t kReportsMax = 64;
// An arbiter that lives has answered by then; of one that is silent it shows later.
constexpr Duration kReportLasts = grace::kDecision;
// How often a rank that suspects the arbiter is told that it lives before it is itself cut off.
constexpr int kRefusalsMax = 3;

}  // namespace

ControlSession::ControlSession(const std::vector<Member>& members, Rank self, std::string job_id,
                               std::chrono::milliseconds silence, ControlLinks& links,
                               TimePoint now)
    : members_(members),
      self_(self),
      links_(links),
      silence_(silence, now),
      heard_at_(now),
      record_(members, self, std::move(job_id)) {
  silence_.on_heard(holder_, now);
}

// ---- What the rank says -------------------------------------------------------------------------

void ControlSession::report(std::string bytes) {
  if (is_connected()) links_.send(std::move(bytes));
}

void ControlSession::report_lasting(std::string bytes, TimePoint now) {
  keep({now, bytes});
  report(std::move(bytes));
}

void ControlSession::report_broken_link(Rank peer, const Status& cause, TimePoint now) {
  if (state_ == State::kAlone) return deliver_broken_link(peer, cause);
  std::string bytes = encode(BrokenLinkMessage{peer, cause.message(), cause.code()});
  keep({now, bytes, peer, cause});
  report(std::move(bytes));
}

void ControlSession::report_waiting(const WaitMessage& wait) {
  std::string bytes = encode_wait(MessageType::kWaiting, wait, size());
  std::erase_if(waits_, [&](const auto& known) { return known.first == wait.communicator; });
  keep_latest(std::pair(wait.communicator, bytes), kWaitsMax, &waits_);
  report(std::move(bytes));
}

void ControlSession::report_timeout(const WaitMessage& wait, TimePoint now) {
  std::string bytes = encode_wait(MessageType::kTimedOut, wait, size());
  keep({.when = now, .bytes = bytes, .late = std::pair(wait.communicator, wait.sequence)});
  report(std::move(bytes));
}

void ControlSession::withdraw_timeout(const WaitMessage& wait) {
  const std::pair operation(wait.communicator, wait.sequence);
  std::erase_if(reports_, [&](const Report& kept) { return kept.late == operation; });
  report(encode_wait(MessageType::kEndedWell, wait, size()));
}

void ControlSession::say_shrink(const ShrinkMessage& message) {
  if (message.step == ShrinkStep::kAsk && tell_left_out(message.communicator)) return;
  shrinks_.on_said(message);
  report(encode_shrink(shrinks_.with_made(message), size()));
}

// Where others go on without this rank, which asks.
bool ControlSession::tell_left_out(std::uint32_t communicator) {
  auto refusal = shrinks_.refusal_of(communicator);
  if (!refusal) return false;
  news_.shrink_words.push_back(std::move(*refusal));
  return has_news_ = true;
}

void ControlSession::leave() {
  if (is_lost()) return end();
  is_leaving_ = true;
  report(encode(MessageType::kGoodbye));
}

// The arbiter may answer yet, and it is for others to say that it is lost.
void ControlSession::say_goodbye_to_standbys(TimePoint now) {
  if (is_lost()) return;
  suspects_ = is_connected();
  tells_standbys_ = true;
  state_ = State::kSeeking;
  untold_ = record_.standbys_to_tell(holder_);
  tells_until_ = now + kGoodbyeTime;
  say_goodbye_to_next(now);
}

void ControlSession::say_goodbye_to_next(TimePoint now) {
  if (untold_.empty()) {
    links_.give_up();
    return end();
  }
  RejoinMessage goodbye = record_.rejoin_message();
  goodbye.left.push_back(self_);
  // One that does not answer takes no more than its share of the time.
  answers_until_ = now + (tells_until_ - now) / std::ssize(untold_);
  const Rank standby = untold_.front();
  untold_.pop_front();
  dial(standby, std::move(goodbye), now);
}

void ControlSession::dial(Rank standby, RejoinMessage greeting, TimePoint now) {
  dialled_ = standby;
  greeting.attempt = ++attempts_;
  links_.dial(standby, greeting, now);
}

void ControlSession::end() {
  state_ = State::kLeft;
  suspects_ = false;
}

void ControlSession::keep(Report report) {
  const TimePoint now = report.when;
  keep_latest(std::move(report), kReportsMax, &reports_);
  drop_old_reports(now);
}

void ControlSession::drop_old_reports(TimePoint now) {
  while (!reports_.empty() && reports_.front().when + kReportLasts + silence_.limit() < now) {
    reports_.pop_front();
  }
}

// ---- What the arbiter says ----------------------------------------------------------------------

void ControlSession::on_heard(TimePoint now) {
  refusals_ = 0;
  known_by_ = kNever;
  const bool is_new = !silence_.reads_old_words(now);
  if (is_new) heard_at_ = now;
  acquit(now);
  if (!is_new || !std::exchange(has_said_misses_, false) || is_leaving_) return;
  // Until it hears this the arbiter counts this rank for another part.
  report(encode(MessageType::kBeat));
}

void ControlSession::on_message(const Message& message, TimePoint now) {
  if (!take(message, now)) on_nonsense(now);
}

void ControlSession::on_nonsense(TimePoint now) {
  lose(ErrorCode::kProtocol, "sent what no arbiter sends", now);
}

void ControlSession::on_closed(TimePoint now, bool is_end) {
  if (is_end && (silence_.is_off() || silence_.hears(holder_, now))) record_.on_ended(holder_);
  lose(ErrorCode::kRankFailed, "died: its control connection closed without goodbye", now);
}

bool ControlSession::take(const Message& message, TimePoint now) {
  switch (message.type) {
    case MessageType::kBeat:
      return message.body.empty();
    case MessageType::kFarewell:
      record_.on_departed(holder_);
      has_said_farewell_ = true;
      seek(now);
      return true;
    case MessageType::kDeparted:
      return on_departed(message);
    case MessageType::kEnded: {
      const auto rank = decode_rank(message.body, size());
      if (rank) record_.on_ended(*rank);
      return rank.has_value();
    }
    case MessageType::kAskCalls: {
      const auto communicator = decode_question(message.body);
      if (!communicator || news_.questions.size() == kQuestionsMax) return false;
      news_.questions.push_back(*communicator);
      return has_news_ = true;
    }
    case MessageType::kAskWaits:
      return news_.asks_for_waits = has_news_ = true;
    case MessageType::kAskWord:
      if (!message.body.empty()) return false;
      // A goodbye is a word, behind which nothing is said (beat()).
      if (!is_leaving_) report(encode(MessageType::kBeat));
      return true;
    case MessageType::kAskSight: {
      const auto rank = other_rank(message);
      if (rank && !is_leaving_) report(encode(SightMessage{*rank, sight_of(*rank)}));
      return rank.has_value();
    }
    case MessageType::kAskProbe: {
      const auto rank = other_rank(message);
      if (rank) links_.probe(*rank, now);
      return rank.has_value();
    }
    case MessageType::kShrink: {
      auto word = decode_shrink(message.body, size());
      if (!word || news_.shrink_words.size() == kShrinkWordsMax) return false;
      if (word->step == ShrinkStep::kLeftOut) {
        const bool has_asked = shrinks_.has_asked(word->communicator);
        const auto answer = shrinks_.answer_to(*word, holder_);
        if (answer && !is_leaving_) report(encode_shrink(*answer, size()));
        if (has_asked) tell_left_out(word->communicator);
        return true;
      }
      shrinks_.on_word(*word, holder_);
      news_.shrink_words.push_back(std::move(*word));
      return has_news_ = true;
    }
    case MessageType::kDecision: {
      auto decision = decode_decision(message.body, size());
      if (decision) deliver(std::move(*decision));
      return decision.has_value();
    }
    case MessageType::kPartEnded:
      if (holder_ == self_ || !message.body.empty()) return false;
      depose(-1,
             "did not hear this rank for long, and has ended its own part of the job: the "
             "network between the hosts was down, or this rank was stopped");
      seek(now);
      return true;
    default:
      return false;
  }
}

bool ControlSession::on_departed(const Message& message) {
  const auto rank = decode_rank(message.body, size());
  if (!rank || (*rank == self_ && !is_leaving_)) return false;
  if (*rank == self_) {
    end();
  } else {
    record_.on_departed(*rank);
  }
  return true;
}

std::optional<Rank> ControlSession::other_rank(const Message& message) const {
  const auto rank = decode_rank(message.body, size());
  return rank && *rank != self_ ? std::optional(*rank) : std::nullopt;
}

ProcessSight ControlSession::sight_of(Rank rank) const {
  const bool is_here = same_host(member(rank), member(self_));
  return is_here ? links_.sight_of(rank) : ProcessSight::kUnseen;
}

void ControlSession::on_probed(Rank rank, bool is_reached) {
  if (!is_leaving_) report(encode(ProbedMessage{rank, is_reached}));
}

void ControlSession::deliver(FailureDecision decision) {
  if (!ledger_.admit(decision)) return;
  record_.on_decision(decision);
  news_.decisions.push_back(std::move(decision));
  has_news_ = true;
}

void ControlSession::deliver_broken_link(Rank peer, const Status& cause) {
  const bool is_corrupted = cause.code() == ErrorCode::kCorrupted;
  deliver({is_corrupted ? cause.code() : ErrorCode::kRankFailed, peer, kEveryCommunicator, 0,
           member_text(member(peer)) + " is lost: " + cause.message()});
}

void ControlSession::beat(TimePoint now) {
  // What an arbiter that closes the connection has not read could cost its last word.
  if (!silence_.take_beat(now) || is_leaving_) return;
  has_said_misses_ = silence_.misses(holder_, now);
  report(encode(has_said_misses_ ? MessageType::kMisses : MessageType::kBeat));
}

// ---- Where the arbiter is lost ------------------------------------------------------------------

void ControlSession::look_for_silence(TimePoint now) {
  if (tells_standbys_ && is_seeking() && now >= answers_until_) return say_goodbye_to_next(now);
  // Also where it says goodbye to standbys: who is silent meanwhile is missed no more.
  if (!silence_.take_silent(now).empty() && state_ == State::kOpen) suspect(now);
}

void ControlSession::lose(ErrorCode code, const std::string& how, TimePoint now) {
  suspects_ = false;
  record_.on_dead(holder_);
  deliver({code, holder_, kEveryCommunicator, 0,
           member_text(member(holder_)) + ", which holds the arbiter, " + how});
  seek(now);
}

void ControlSession::suspect(TimePoint now) {
  suspects_ = true;
  record_.on_unreachable(holder_);
  seek(now);
}

void ControlSession::acquit(TimePoint now) {
  silence_.on_heard(holder_, now);
  if (!suspects_) return;
  suspects_ = tells_standbys_ = false;
  links_.give_up();
  record_.on_arbiter();
  state_ = State::kOpen;
}

void ControlSession::depose_silent(Rank successor) {
  if (!suspects_) return;
  depose(successor, fmt::format("is silent: nothing was heard of it for {}; {}",
                                duration_text(silence_.limit()), sight_text(sight_of(holder_))));
}

void ControlSession::depose(Rank successor, const std::string& why) {
  report(encode_deposed({successor, silence_.limit()}));
  suspects_ = false;
  record_.on_dead(holder_);
  deliver({ErrorCode::kRankFailed, holder_, kEveryCommunicator, 0,
           member_text(member(holder_)) + ", which held the arbiter, " + why});
}

void ControlSession::seek(TimePoint now) {
  if (!suspects_) {
    links_.close();
    silence_.forget(holder_);
  }
  if (tells_standbys_) return;
  if (state_ != State::kSeeking) seek_until_ = now + grace::seek_time(silence_.limit());
  const bool self_last = silence_.was_stopped(now);
  Rank next = record_.next_standby(self_last);
  if (next < 0 && now < seek_until_ && record_.forgive()) {
    if (suspects_) record_.on_unreachable(holder_);
    next = record_.next_standby(self_last);
  }
  if (next < 0) {
    depose_silent(-1);
    return go_alone(now);
  }
  RejoinMessage greeting = record_.rejoin_message();
  if (suspects_) greeting.dead.push_back(holder_);
  state_ = State::kSeeking;
  dial(next, std::move(greeting), now);
}

void ControlSession::on_dialled(DialOutcome outcome, TimePoint now) {
  if (tells_standbys_ && outcome != DialOutcome::kPending) return say_goodbye_to_next(now);
  switch (outcome) {
    case DialOutcome::kPending:
      return;
    case DialOutcome::kSeated:
      return move_to(dialled_, now);
    case DialOutcome::kRefused:
    case DialOutcome::kUnknown:
      return on_refused(now, outcome == DialOutcome::kRefused);
    case DialOutcome::kNoted:  // is said to those alone that leave
    case DialOutcome::kFailed:
    case DialOutcome::kUnreachable:
      record_.on_unreachable(dialled_);
      return seek(now);
    case DialOutcome::kEnded:
      record_.on_part_ended(dialled_);
      return seek(now);
    case DialOutcome::kAbsent:
      record_.on_absent(dialled_);
      return seek(now);
    case DialOutcome::kLeft:
      // From another host the end of the arbiter's connection is no proof of its own, also where
      // its rank has left.
      if (suspects_ || !(has_said_farewell_ || same_host(member(holder_), member(self_)))) {
        record_.on_departed_elsewhere(dialled_);
      } else {
        record_.on_departed(dialled_);
      }
      return seek(now);
  }
}

void ControlSession::on_refused(TimePoint now, bool is_known) {
  record_.on_unreachable(dialled_);
  if (is_known) record_.on_heard_by_another(holder_);
  // A standby that was stopped finds out within a silence whether it hears the arbiter.
  if (!is_known && known_by_ == kNever) known_by_ = now + silence_.limit();
  if (suspects_ && (is_known ? ++refusals_ < kRefusalsMax : now < known_by_)) {
    acquit(now);
    // Others may have heard the arbiter last a beat later, and lose it then.
    return silence_.on_heard(holder_, now - silence_.limit() * 5 / 6);
  }
  if (!is_known || (!suspects_ && now < seek_until_)) return seek(now);
  suspects_ = false;
  deliver({ErrorCode::kPartitioned, self_, kEveryCommunicator, 0,
           fmt::format("{} is cut off: the link between it and rank {}, which holds the arbiter, "
                       "is broken, and others hear that one",
                       member_text(member(self_)), holder_)});
  go_alone(now);
}

void ControlSession::move_to(Rank standby, TimePoint now) {
  depose_silent(standby);
  links_.move();
  silence_.forget(holder_);
  holder_ = standby;
  has_said_farewell_ = false;
  heard_at_ = now;
  refusals_ = 0;
  known_by_ = kNever;
  silence_.on_heard(holder_, now);
  record_.on_arbiter();
  state_ = State::kOpen;
  if (!is_leaving_) report(encode(MessageType::kBeat));
  drop_old_reports(now);
  for (const Report& kept : reports_) report(kept.bytes);
  for (const auto& [communicator, bytes] : waits_) report(bytes);
  for (const ShrinkMessage& message : shrinks_.to_repeat()) report(encode_shrink(message, size()));
  if (is_leaving_) report(encode(MessageType::kGoodbye));
}

// Nobody is left to ask who is at the end of a broken link.
void ControlSession::go_alone(TimePoint now) {
  links_.close();
  links_.give_up();
  is_last_ = record_.is_last();
  const Parts parts = record_.parts();
  if (!may_go_on(parts)) partition_ = partitioned(self_, parts);
  state_ = State::kAlone;
  drop_old_reports(now);
  for (const Report& kept : std::exchange(reports_, {})) {
    if (kept.peer >= 0) deliver_broken_link(kept.peer, kept.cause);
  }
  if (is_leaving_) end();
}

}  // namespace unisono::rendezvous
