#include "rendezvous/sessions/serving_arbiter.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/keep_latest.h"
#include "base/log.h"
#include "rendezvous/failure/standby.h"

namespace unisono::rendezvous {
namespace {

// What a standby's arbiter has said, for ranks that come late.
constexpr std::size_t kSaidMax = 256;

std::shared_ptr<const std::string> shared(std::string bytes) {
  return std::make_shared<const std::string>(std::move(bytes));
}

std::string bytes_of(const FailureDecider::Outgoing& outgoing) {
  switch (outgoing.type) {
    case MessageType::kAskCalls:
      return encode_question(outgoing.decision.communicator);
    case MessageType::kAskWaits:
    case MessageType::kAskWord:
      return encode(outgoing.type);
    default:
      return encode(MessageType::kDecision, outgoing.decision);
  }
}

// Does `act` with what was said, if that could be decoded.
template <typename Said, typename Act>
Status act_on(Result<Said> said, Act act) {
  if (!said) return said.error();
  act(std::move(*said));
  return {};
}

int holder_number(const std::vector<Rank>& standbys, Rank self) {
  if (self == 0) return 0;
  const auto found = std::lower_bound(standbys.begin(), standbys.end(), self);
  UNISONO_ASSERT(found != standbys.end() && *found == self,
                 "rank 0 or a standby holds the arbiter");
  return static_cast<int>(found - standbys.begin()) + 1;
}

}  // namespace

ServingArbiter::ServingArbiter(std::vector<Member> members, const Options& options,
                               ArbiterLinks& links, TimePoint now)
    : options_(options),
      size_(static_cast<int>(members.size())),
      links_(links),
      phase_(options.is_standbys ? Phase::kStandingBy : Phase::kServing),
      standbys_(choose_standbys(members)),
      decider_(std::move(members), options.silence),
      shrinks_(size_, holder_number(standbys_, options.self), this, options.silence),
      silence_(options.silence, now) {
  if (options.is_standbys) succession_.emplace(options.self, size_, options.silence);
}

bool ServingArbiter::is_standby(Rank rank) const {
  return std::binary_search(standbys_.begin(), standbys_.end(), rank);
}

void ServingArbiter::seat(int connection, Rank rank, TimePoint now) {
  add_seat(connection, rank);
  silence_.on_heard(rank, now);
}

void ServingArbiter::add_seat(int connection, Rank rank) {
  seats_.emplace(connection, rank);
  connections_.emplace(rank, connection);
}

std::vector<Rank> ServingArbiter::seated_ranks() const {
  std::vector<Rank> ranks;
  for (const auto& [rank, connection] : connections_) ranks.push_back(rank);
  return ranks;
}

bool ServingArbiter::is_done() const {
  // A successor whose own rank has left at once still tells those that are on their way.
  const bool awaits_none = !succession_ || succession_->next_due() == kNever;
  return phase_ == Phase::kDone || (phase_ == Phase::kServing && seats_.empty() && awaits_none);
}

// ---- What ranks say -----------------------------------------------------------------------------

void ServingArbiter::on_heard(int connection, TimePoint now) {
  const Rank rank = seats_.at(connection);
  if (unanswered_.erase(rank) > 0) decider_.on_come(rank);
  if (!silence_.listens_for(rank)) return;
  if (silence_.misses(rank, now)) missed_until_[rank] = now + silence_.limit() / 2;
  silence_.on_heard(rank, now);
  decider_.on_heard(rank, now);
}

void ServingArbiter::on_message(int connection, const Message& message, TimePoint now) {
  if (message.type == MessageType::kGoodbye) return unseat(connection, Parting::kLeft);
  if (message.type == MessageType::kGiveUp && succession_) {
    return unseat(connection, Parting::kWithdrew);
  }
  const Status outcome = take(seats_.at(connection), message, now);
  if (!outcome) on_violation(connection, outcome);
}

void ServingArbiter::on_violation(int connection, const Status& what) {
  unseat(connection, Parting::kClosed, what);
}

void ServingArbiter::on_closed(int connection, TimePoint now, const Closing& how) {
  if (succession_ && how.is_new) return unseat(connection, Parting::kWithdrew);
  const bool is_end = how.is_end && proves_end(seats_.at(connection), now);
  unseat(connection, is_end ? Parting::kEnded : Parting::kClosed);
}

// Who goes to another arbiter, or has not heard this one for long, closes its connection too.
bool ServingArbiter::proves_end(Rank rank, TimePoint now) const {
  if (deposers_.contains(rank)) return false;
  return silence_.is_off() || is_heard(rank, now) || host_of(rank) == host_key(self());
}

void ServingArbiter::note_ended(Rank rank) {
  if (rank != options_.self && ended_.insert(rank).second) newly_ended_.push_back(rank);
}

Status ServingArbiter::take(Rank from, const Message& message, TimePoint now) {
  if (phase_ == Phase::kStandingBy) {
    return {ErrorCode::kProtocol, fmt::format("rank {} spoke before its turn", from)};
  }
  const std::string_view body = message.body;
  switch (message.type) {
    case MessageType::kWaiting:
      return act_on(decode_wait(body, size_),
                    [&](WaitMessage wait) { decider_.on_waiting(from, std::move(wait)); });
    case MessageType::kTimedOut:
      return act_on(decode_wait(body, size_),
                    [&](WaitMessage wait) { decider_.on_timed_out(from, std::move(wait), now); });
    case MessageType::kEndedWell:
      return act_on(decode_wait(body, size_),
                    [&](const WaitMessage& wait) { decider_.on_ended_well(from, wait); });
    case MessageType::kWaits:
      return act_on(decode_waits(body, size_),
                    [&](WaitsMessage waits) { decider_.on_waits(from, std::move(waits), now); });
    case MessageType::kFailure:
      return act_on(decode_decision(body, size_),
                    [&](FailureDecision told) { decider_.on_failure(std::move(told)); });
    case MessageType::kBrokenLink:
      return act_on(decode_broken_link(body, size_), [&](const BrokenLinkMessage& link) {
        decider_.on_broken_link(from, link, now, silence_.listens_for(link.peer));
      });
    case MessageType::kDiffering:
      return act_on(decode_calls(message.type, body, size_), [&](CallsMessage calls) {
        decider_.on_differing(from, std::move(calls), now);
      });
    case MessageType::kCalls:
      return act_on(decode_calls(message.type, body, size_),
                    [&](CallsMessage calls) { decider_.on_calls(from, std::move(calls)); });
    case MessageType::kShrink: {
      UNISONO_ASSIGN(ShrinkMessage shrink, decode_shrink(body, size_));
      return shrinks_.on_message(from, std::move(shrink), now);
    }
    case MessageType::kSight:
      return act_on(decode_sight(body, size_),
                    [&](const SightMessage& told) { witnesses_.on_sight(from, told); });
    case MessageType::kProbed:
      return act_on(decode_probed(body, size_),
                    [&](const ProbedMessage& told) { witnesses_.on_probed(from, told); });
    case MessageType::kBeat:
    case MessageType::kMisses:
      return on_beat(from, message, now);
    case MessageType::kDeposed:
      return act_on(decode_deposed(body, size_),
                    [&](const DeposedMessage& told) { on_deposed(from, told, now); });
    case MessageType::kGiveUp:
      return {};                   // crossed the welcome on its way
    case MessageType::kDecline: {  // so did this
      const Status why = decode_decline(from, body);
      decider_.on_failure({why.code(), from, kEveryCommunicator, 0, why.message()});
      return {};
    }
    default:
      return {ErrorCode::kProtocol,
              fmt::format("a message of unknown type {}", static_cast<int>(message.type))};
  }
}

Status ServingArbiter::on_beat(Rank from, const Message& message, TimePoint now) {
  if (!message.body.empty()) return {ErrorCode::kProtocol, "malformed beat message"};
  if (message.type == MessageType::kMisses) {
    deaf_.insert(from);
  } else if (deaf_.erase(from) > 0) {
    missed_until_[from] = now + silence_.limit() / 2;
  }
  return {};
}

// The word of one that was cut off for a while, while this arbiter served the others, is about
// itself; unless most do not hear it, because what it says is lost. Who goes on alone says so too.
void ServingArbiter::on_deposed(Rank from, const DeposedMessage& told, TimePoint now) {
  if (decider_.is_here(from) && silence_.was_stopped(now)) deposed_ = told;
  deposers_.insert(from);
  deaf_.insert(from);
  if (const Parts parts = heard_parts(now); !deposed_ && is_minority(parts, now)) {
    end_minority(parts, now);
  }
}

void ServingArbiter::unseat(int connection, Parting how, const Status& violation) {
  const Rank rank = seats_.at(connection);
  const bool left = how == Parting::kLeft;
  if (phase_ == Phase::kServing && how == Parting::kWithdrew) {
    // It has given up before it had an answer, and comes anew; if not, it is silent.
    succession_->on_withdrawn(rank);
    decider_.await(rank);
  } else if (phase_ == Phase::kServing) {
    // Of two decisions on a rank the second is not told, so this one may not come.
    shrinks_.on_gone(rank,
                     {left ? ErrorCode::kRankLeft : ErrorCode::kRankFailed,
                      fmt::format("rank {} {} the job", rank, left ? "left" : "is lost to"), rank});
    if (left) {
      decider_.on_goodbye(rank);
    } else if (!violation) {
      decider_.on_violation(rank, violation.message());
    } else if (deposers_.contains(rank)) {
      decider_.condemn(rank, "has gone to another arbiter, since it did not hear this one");
    } else {
      decider_.on_closed(rank, "closed without goodbye");
    }
    // Who has left is told to those that need to know (tell_departure()).
    if (left) ended_.insert(rank);
    if (how == Parting::kEnded) note_ended(rank);
    if (rank == options_.self && left) own_rank_left_ = true;
    if (left) tell_departure(rank);
    silence_.forget(rank);
  } else {
    succession_->on_withdrawn(rank);
    if (left) succession_->on_gone(rank);
  }
  close(connection);
}

// A standby must know who left before it takes over, and all must know which standby will not. The
// rank itself hears it last: it goes then, and takes an arbiter that dies before for lost.
void ServingArbiter::tell_departure(Rank rank) {
  const auto told = shared(encode_rank(MessageType::kDeparted, rank));
  remember(-1, told);
  for (const auto& [other, connection] : connections_) {
    if (other != rank && (is_standby(rank) || is_standby(other))) links_.send(connection, told);
  }
  say(rank, told);
}

// ---- What it decides ----------------------------------------------------------------------------

void ServingArbiter::on_wake(TimePoint now) {
  if (phase_ == Phase::kDone) return;
  if (deposed_) return abdicate();
  if (succession_) look_after_succession(now);
  if (phase_ != Phase::kServing) return;
  look_after_silence(now);
  say_decisions(now);
}

TimePoint ServingArbiter::next_due() const {
  if (phase_ == Phase::kDone) return kNever;
  if (phase_ == Phase::kStandingBy) return succession_->next_due();
  const TimePoint due = std::min({decider_.next_due(), shrinks_.next_due(), silence_.next_due()});
  return succession_ ? std::min(due, succession_->next_due()) : due;
}

void ServingArbiter::say_decisions(TimePoint now) {
  for (const Rank rank : std::exchange(newly_ended_, {})) {
    const auto told = shared(encode_rank(MessageType::kEnded, rank));
    remember(-1, told);
    say(-1, told);
  }
  const std::vector<FailureDecider::Outgoing> decided = decider_.take(now);
  for (const FailureDecider::Outgoing& outgoing : decided) {
    if (outgoing.type != MessageType::kDecision) continue;
    log::info(outgoing.decision.message);
    if (outgoing.target == -1) shrinks_.on_decision(outgoing.decision);
  }
  const std::vector<ShrinkAgreements::Outgoing> agreed = shrinks_.take(now);
  for (FailureDecision& decision : shrinks_.take_decisions()) {
    decider_.on_failure(std::move(decision));
  }
  for (const FailureDecider::Outgoing& outgoing : decided) {
    const auto bytes = shared(bytes_of(outgoing));
    // A question is asked again.
    if (outgoing.type == MessageType::kDecision) remember(outgoing.target, bytes);
    say(outgoing.target, bytes);
  }
  // After the decisions, so that who is told with whom to go on knows why.
  for (const ShrinkAgreements::Outgoing& outgoing : agreed) {
    say(outgoing.target, encode_shrink(outgoing.message, size_));
  }
}

void ServingArbiter::say(Rank target, const std::shared_ptr<const std::string>& bytes) {
  if (target != -1) {
    const auto found = connections_.find(target);
    if (found != connections_.end()) links_.send(found->second, bytes);
    return;
  }
  for (const auto& [rank, connection] : connections_) links_.send(connection, bytes);
}

void ServingArbiter::say(Rank target, std::string bytes) { say(target, shared(std::move(bytes))); }

void ServingArbiter::remember(Rank target, std::shared_ptr<const std::string> bytes) {
  if (!succession_) return;
  keep_latest(Said{target, std::move(bytes)}, kSaidMax, &said_);
}

void ServingArbiter::stop(bool own_rank_left, TimePoint now) {
  if (phase_ == Phase::kDone) return;
  own_rank_left_ = own_rank_left_ || own_rank_left;
  if (phase_ == Phase::kServing) {
    if (!own_rank_left_) {
      decider_.on_closed(options_.self, "ended with its process, without goodbye");
    }
    say_decisions(now);
  }
  if (own_rank_left_) say(-1, encode(MessageType::kFarewell));
  close_all();
  phase_ = Phase::kDone;
}

void ServingArbiter::close(int connection) {
  const auto seat = seats_.find(connection);
  connections_.erase(seat->second);
  deaf_.erase(seat->second);
  unanswered_.erase(seat->second);
  seats_.erase(seat);
  links_.close(connection);
}

void ServingArbiter::close_all() {
  while (!seats_.empty()) close(seats_.begin()->first);
}

}  // namespace unisono::rendezvous
