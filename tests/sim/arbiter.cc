#include "tests/sim/arbiter.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/grace_periods.h"
#include "base/keep_latest.h"
#include "rendezvous/peer_information.h"
#include "rendezvous/standby.h"
#include "tests/sim/control_text.h"

namespace unisono::sim {

using namespace rendezvous;

namespace {

constexpr std::size_t kSaidMax = 256;

std::string bytes_of(const FailureDecider::Outgoing& outgoing) {
  switch (outgoing.type) {
    case MessageType::kAskCalls:
      return encode_question(outgoing.decision.communicator);
    case MessageType::kAskWaits:
      return encode(MessageType::kAskWaits);
    default:
      return encode(MessageType::kDecision, outgoing.decision);
  }
}

}  // namespace

Arbiter::Arbiter(Options options, TimePoint now)
    : options_(std::move(options)),
      size_(static_cast<int>(options_.members.size())),
      phase_(options_.self == 0 ? Phase::kServing : Phase::kStandingBy),
      decider_(options_.members),
      shrinks_(size_, options_.self),
      silence_(options_.silence, now) {
  if (options_.self != 0) succession_.emplace(options_.self, size_);
}

void Arbiter::seat(int connection, Rank rank, TimePoint now) {
  seats_.emplace(connection, rank);
  silence_.on_heard(rank, now);
}

void Arbiter::on_rejoin(int connection, RejoinMessage told, TimePoint now) {
  silence_.on_wake(now);
  if (phase_ == Phase::kDone) {
    options_.send(connection, encode(MessageType::kFarewell));
    return options_.close(connection);
  }
  const Rank rank = told.rank;
  // It has come anew, which is no death.
  if (const auto earlier = connection_of(rank)) {
    options_.close(*earlier);
    seats_.erase(*earlier);
  }
  seats_.emplace(connection, rank);
  succession_->on_come(rank, now);
  if (phase_ == Phase::kServing) {
    decider_.on_come(rank);
    learn(std::move(told));
    welcome_back(connection, rank, now);
  } else {
    rejoined_.push_back(std::move(told));
    if (succession_->has_taken_over()) take_over(now);
  }
}

void Arbiter::on_message(int connection, std::string_view bytes, TimePoint now) {
  silence_.on_wake(now);
  const auto seat = seats_.find(connection);
  if (seat == seats_.end()) return;
  const Rank from = seat->second;
  if (silence_.listens_for(from)) silence_.on_heard(from, now);
  const MessageType type = type_of(bytes);
  if (type == MessageType::kGoodbye) return unseat(connection, {}, true, false);
  if (type == MessageType::kGiveUp && succession_) return unseat(connection, {}, false, true);
  if (phase_ == Phase::kStandingBy) return;
  const Status outcome = take(from, type, body_of(bytes), now);
  if (!outcome) unseat(connection, outcome, false, false);
}

void Arbiter::on_closed(int connection, TimePoint now) {
  silence_.on_wake(now);
  if (seats_.contains(connection)) unseat(connection, {}, false, false);
}

void Arbiter::unseat(int connection, const Status& outcome, bool left, bool gave_up) {
  const Rank rank = seats_.at(connection);
  if (phase_ == Phase::kServing && gave_up) {
    succession_->on_withdrawn(rank);
    decider_.await(rank);
  } else if (phase_ == Phase::kServing) {
    shrinks_.on_gone(rank,
                     {left ? ErrorCode::kRankLeft : ErrorCode::kRankFailed,
                      fmt::format("rank {} {} the job", rank, left ? "left" : "is lost to"), rank});
    if (left) {
      decider_.on_goodbye(rank);
    } else if (!outcome) {
      decider_.on_violation(rank, outcome.message());
    } else {
      decider_.on_closed(rank, "closed without goodbye");
    }
    if (rank == options_.self && left) own_rank_left_ = true;
    if (left) tell_departure(rank);
    silence_.forget(rank);
  } else {
    succession_->on_withdrawn(rank);
    if (left) succession_->on_gone(rank);
  }
  options_.close(connection);
  seats_.erase(connection);
}

Status Arbiter::take(Rank from, MessageType type, std::string_view body, TimePoint now) {
  switch (type) {
    case MessageType::kWaiting: {
      UNISONO_ASSIGN(WaitMessage wait, decode_wait(body, size_));
      decider_.on_waiting(from, std::move(wait));
      return {};
    }
    case MessageType::kTimedOut: {
      UNISONO_ASSIGN(WaitMessage wait, decode_wait(body, size_));
      decider_.on_timed_out(from, std::move(wait), now);
      return {};
    }
    case MessageType::kWaits: {
      UNISONO_ASSIGN(WaitsMessage waits, decode_waits(body, size_));
      decider_.on_waits(from, std::move(waits), now);
      return {};
    }
    case MessageType::kFailure: {
      UNISONO_ASSIGN(FailureDecision decision, decode_decision(body, size_));
      decider_.on_failure(std::move(decision));
      return {};
    }
    case MessageType::kBrokenLink: {
      UNISONO_ASSIGN(const BrokenLinkMessage link, decode_broken_link(body, size_));
      decider_.on_broken_link(from, link, now);
      return {};
    }
    case MessageType::kShrink: {
      UNISONO_ASSIGN(ShrinkMessage shrink, decode_shrink(body, size_));
      return shrinks_.on_message(from, std::move(shrink), now);
    }
    case MessageType::kDeposed: {
      UNISONO_ASSIGN(DeposedMessage deposed, decode_deposed(body, size_));
      if (decider_.is_here(from) && silence_.was_stopped(now)) deposed_ = deposed;
      return {};
    }
    case MessageType::kBeat:
    case MessageType::kGiveUp:
      return {};
    default:
      return {ErrorCode::kProtocol, "a message of unknown type"};
  }
}

// ---- Succession ---------------------------------------------------------------------------------

void Arbiter::learn(RejoinMessage told) {
  std::erase(told.dead, options_.self);  // it is here
  decider_.learn(told);
  for (const std::vector<Rank>* const gone : {&told.dead, &told.left}) {
    for (const Rank rank : *gone) succession_->on_gone(rank);
  }
  for (const Rank rank : told.left) {
    shrinks_.on_gone(rank, {ErrorCode::kRankLeft, fmt::format("rank {} left the job", rank), rank});
  }
}

void Arbiter::take_over(TimePoint now) {
  phase_ = Phase::kServing;
  for (Rank rank = 0; rank < size_; ++rank) {
    if (!succession_->has_come(rank)) decider_.await(rank);
  }
  for (RejoinMessage& told : std::exchange(rejoined_, {})) learn(std::move(told));
  for (const auto& [connection, rank] : seats_) welcome_back(connection, rank, now);
}

void Arbiter::welcome_back(int connection, Rank rank, TimePoint now) {
  silence_.on_heard(rank, now);
  options_.send(connection, encode(MessageType::kSeated));
  for (const Said& said : said_) {
    if (said.target == -1 || said.target == rank) options_.send(connection, said.bytes);
  }
}

void Arbiter::look_after_succession(TimePoint now) {
  if (succession_->refuses(now)) {
    const std::string refusal = encode_refusal(
        {ErrorCode::kRendezvous, fmt::format("rank {} hears the arbiter", options_.self)});
    for (const auto& [connection, rank] : seats_) options_.send(connection, refusal);
    close_all();
    rejoined_.clear();
    succession_->on_refused();
  }
  judge_missing(succession_->take_missing(now));
}

void Arbiter::judge_missing(const std::vector<Rank>& missing) {
  if (missing.empty()) return;
  if (!is_greater_part(succession_->came(), not_here(missing))) return end_minority();
  for (const Rank rank : missing) {
    decider_.condemn(rank, fmt::format("died or is stopped: it did not come to rank {}, which "
                                       "holds the arbiter now",
                                       options_.self));
  }
}

std::set<Rank> Arbiter::not_here(const std::vector<Rank>& ranks) const {
  const Member& here = decider_.member(options_.self);
  std::set<Rank> elsewhere;
  for (const Rank rank : ranks) {
    if (!same_host(decider_.member(rank), here)) elsewhere.insert(rank);
  }
  return elsewhere;
}

void Arbiter::end_minority() {
  const std::string why = "is cut off: the greater part may go on without it";
  shrinks_.close(
      {ErrorCode::kRankFailed, fmt::format("rank {} {}", options_.self, why), options_.self});
  decider_.condemn(options_.self, why);
}

void Arbiter::tell_departure(Rank rank) {
  const std::string told = encode_departed(rank);
  if (succession_) keep_latest(Said{-1, told}, kSaidMax, &said_);
  for (const auto& [connection, other] : seats_) {
    const bool concerns = is_standby(rank) || is_standby(other);
    if (other != rank && concerns) options_.send(connection, told);
  }
}

void Arbiter::look_after_silence(TimePoint now) {
  judge_silent(silence_.take_silent(now), now);
  if (!silence_.take_beat(now)) return;
  for (const auto& [connection, rank] : seats_) {
    options_.send(connection, encode(MessageType::kBeat));
  }
}

void Arbiter::judge_silent(const std::vector<Rank>& silent, TimePoint now) {
  if (silent.empty()) return;
  std::vector<Rank> unheard = silence_.overdue(now);
  unheard.insert(unheard.end(), silent.begin(), silent.end());
  std::set<Rank> heard;
  for (const auto& [connection, rank] : seats_) heard.insert(rank);
  for (const Rank rank : unheard) heard.erase(rank);
  const std::set<Rank> elsewhere = not_here(unheard);
  const bool may_go_on = std::any_of(elsewhere.begin(), elsewhere.end(), is_standby);
  if (may_go_on && !is_greater_part(heard, elsewhere)) return end_minority();
  for (const Rank rank : silent) {
    decider_.condemn(rank, "is silent: it is stopped, or its host cannot be reached");
  }
}

void Arbiter::abdicate() {
  const FailureDecision decision{ErrorCode::kRankFailed, options_.self, kEveryCommunicator, 0,
                                 fmt::format("rank {}, which held the arbiter, was silent; the job "
                                             "went on without it",
                                             options_.self)};
  if (const auto own = connection_of(options_.self)) {
    options_.send(*own, encode(MessageType::kDecision, decision));
  }
  close_all();
  phase_ = Phase::kDone;
}

void Arbiter::stop(TimePoint now) {
  if (phase_ == Phase::kServing) {
    if (!own_rank_left_) {
      decider_.on_closed(options_.self, "ended with its process, without goodbye");
    }
    say_decisions(now);
  }
  if (own_rank_left_ && phase_ != Phase::kDone) {
    for (const auto& [connection, rank] : seats_) {
      options_.send(connection, encode(MessageType::kFarewell));
    }
  }
  close_all();
  phase_ = Phase::kDone;
}

// ---- What is said -------------------------------------------------------------------------------

void Arbiter::on_wake(TimePoint now) {
  silence_.on_wake(now);
  if (deposed_ && phase_ != Phase::kDone) return abdicate();
  if (succession_ && phase_ != Phase::kDone) look_after_succession(now);
  if (phase_ == Phase::kServing) look_after_silence(now);
  if (phase_ == Phase::kServing) say_decisions(now);
}

void Arbiter::say_decisions(TimePoint now) {
  const std::vector<FailureDecider::Outgoing> decided = decider_.take(now);
  for (const FailureDecider::Outgoing& outgoing : decided) {
    if (outgoing.type == MessageType::kDecision && outgoing.target == -1) {
      shrinks_.on_decision(outgoing.decision);
    }
  }
  const std::vector<ShrinkAgreements::Outgoing> agreed = shrinks_.take(now);
  for (FailureDecision& decision : shrinks_.take_decisions()) {
    decider_.on_failure(std::move(decision));
  }
  for (const FailureDecider::Outgoing& outgoing : decided) {
    const std::string bytes = bytes_of(outgoing);
    if (succession_) keep_latest(Said{outgoing.target, bytes}, kSaidMax, &said_);
    say(outgoing.target, bytes);
  }
  for (const ShrinkAgreements::Outgoing& outgoing : agreed) {
    say(outgoing.target, encode_shrink(outgoing.message, size_));
  }
}

void Arbiter::say(Rank target, const std::string& bytes) {
  for (const auto& [connection, rank] : seats_) {
    if (target == -1 || target == rank) options_.send(connection, bytes);
  }
}

void Arbiter::close_all() {
  for (const auto& [connection, rank] : std::exchange(seats_, {})) options_.close(connection);
}

std::optional<int> Arbiter::connection_of(Rank rank) const {
  for (const auto& [connection, seated] : seats_) {
    if (seated == rank) return connection;
  }
  return std::nullopt;
}

TimePoint Arbiter::next_due() const {
  if (phase_ == Phase::kDone) return kNever;
  if (phase_ == Phase::kStandingBy) return succession_->next_due();
  const TimePoint due = std::min({decider_.next_due(), shrinks_.next_due(), silence_.next_due()});
  return succession_ ? std::min(due, succession_->next_due()) : due;
}

}  // namespace unisono::sim
