// The part of the arbiter's loop that is there for the case that arbiters are lost: how a standby's
// takes over, who is silent, and what an arbiter does that the job has gone on without.
#include <fmt/format.h>

#include <algorithm>

#include "base/grace_periods.h"
#include "base/keep_latest.h"
#include "base/log.h"
#include "rendezvous/arbiter_loop.h"
#include "rendezvous/peer_information.h"
#include "rendezvous/rank_text.h"
#include "rendezvous/standby.h"

namespace unisono::rendezvous {
namespace {

// What a standby's arbiter has said, for ranks that come late.
constexpr std::size_t kSaidMax = 256;

}  // namespace

void ArbiterLoop::seat_again(Strangers::Arrival arrival) {
  const int fd = arrival.stream.fd();
  const Rank rank = arrival.rejoin.rank;
  const auto earlier = find_seat(rank);
  // It has come anew, which is no death.
  if (earlier != seats_.end()) seats_.erase(earlier);
  Seat& seat =
      seats_.emplace(fd, Seat{std::move(arrival.stream), rank, arrival.proved_key}).first->second;
  succession_->on_come(rank, now_);
  if (phase_ == Phase::kServing) {
    decider_->on_come(rank);
    learn(std::move(arrival.rejoin));
    welcome_back(&seat);
  } else {
    rejoined_.push_back(std::move(arrival.rejoin));
    if (succession_->has_taken_over()) take_over();
  }
  // What came along with its greeting makes no event of its own.
  if (seats_.count(fd) > 0) read_seat(fd);
  const auto seated = seats_.find(fd);
  if (seated != seats_.end()) seated->second.is_new = false;
}

void ArbiterLoop::learn(RejoinMessage told) {
  std::erase(told.dead, options_.self);  // it is here
  decider_->learn(told);
  for (const std::vector<Rank>* const gone : {&told.dead, &told.left}) {
    for (const Rank rank : *gone) succession_->on_gone(rank);
  }
  for (const Rank rank : told.left) {
    shrinks_.on_gone(rank, {ErrorCode::kRankLeft, fmt::format("rank {} left the job", rank), rank});
  }
}

void ArbiterLoop::take_over() {
  // Some may have given up already.
  read_all_seats();
  log::info(fmt::format("rank {} holds the arbiter from now on", options_.self));
  phase_ = Phase::kServing;
  serves_ = true;
  decider_.emplace(options_.members);
  for (Rank rank = 0; rank < options_.size; ++rank) {
    if (!succession_->has_come(rank)) decider_->await(rank);
  }
  for (RejoinMessage& told : std::exchange(rejoined_, {})) learn(std::move(told));
  for (auto& [fd, seat] : seats_) welcome_back(&seat);
}

void ArbiterLoop::welcome_back(Seat* seat) {
  silence_.on_heard(seat->rank, now_);
  send(seat, std::make_shared<const std::string>(encode(MessageType::kSeated)));
  for (const Said& said : said_) {
    if (said.target == -1 || said.target == seat->rank) send(seat, said.bytes);
  }
}

void ArbiterLoop::look_after_succession() {
  if (succession_->refuses(now_)) {
    const auto refusal = std::make_shared<const std::string>(encode_refusal(
        {ErrorCode::kRendezvous, fmt::format("rank {} hears the arbiter", options_.self)}));
    for (auto& [fd, seat] : seats_) {
      send(&seat, refusal);
      seat.stream.close();
    }
    seats_.clear();
    rejoined_.clear();
    succession_->on_refused();
  }
  judge_missing(succession_->take_missing(now_));
}

void ArbiterLoop::judge_missing(const std::vector<Rank>& missing) {
  if (missing.empty()) return;
  if (!is_greater_part(succession_->came(), not_here(missing))) {
    return end_minority(fmt::format("only {} came to it when the arbiter was lost, {} did not",
                                    ranks_text(seated_ranks()), ranks_text(missing)));
  }
  for (const Rank rank : missing) {
    decider_->condemn(rank, fmt::format("died or is stopped: it did not come within {} to rank {}, "
                                        "which holds the arbiter now",
                                        duration_text(grace::kSuccession), options_.self));
  }
}

// Between processes of a host there is no partition.
std::set<Rank> ArbiterLoop::not_here(const std::vector<Rank>& ranks) const {
  const Member& here = decider_->member(options_.self);
  std::set<Rank> elsewhere;
  for (const Rank rank : ranks) {
    if (!same_host(decider_->member(rank), here)) elsewhere.insert(rank);
  }
  return elsewhere;
}

// The others may have an arbiter, and go on.
void ArbiterLoop::end_minority(const std::string& what) {
  const std::string why =
      fmt::format("is cut off: {}; the greater part may go on without them", what);
  shrinks_.close(
      {ErrorCode::kRankFailed, fmt::format("rank {} {}", options_.self, why), options_.self});
  decider_->condemn(options_.self, why);
}

std::vector<Rank> ArbiterLoop::seated_ranks() const {
  std::set<Rank> ranks;
  for (const auto& [fd, seat] : seats_) ranks.insert(seat.rank);
  return {ranks.begin(), ranks.end()};
}

void ArbiterLoop::remember(Rank target, std::shared_ptr<const std::string> bytes) {
  if (!succession_) return;
  keep_latest(Said{target, std::move(bytes)}, kSaidMax, &said_);
}

// A standby must know who left before it takes over, and all must know which standby will not.
void ArbiterLoop::tell_departure(Rank rank) {
  const auto told = std::make_shared<const std::string>(encode_departed(rank));
  remember(-1, told);
  for (auto& [fd, seat] : seats_) {
    if (seat.rank != rank && (is_standby(rank) || is_standby(seat.rank))) send(&seat, told);
  }
}

// Ranks that come in the moment in which this one ends must not take it for dead.
void ArbiterLoop::turn_away_newcomers() {
  for (const Listener& listener : options_.listeners) {
    for (std::size_t i = 0; i < kStrangersMax && strangers_.accepting(now_); ++i) {
      if (strangers_.accept(listener, now_) < 0) break;
    }
  }
  for (const int fd : strangers_.held()) {
    auto arrival = strangers_.read(fd, now_);
    if (!arrival) continue;
    arrival->stream.queue(encode(MessageType::kFarewell));
    arrival->stream.close();
  }
}

void ArbiterLoop::look_after_silence() {
  judge_silent(silence_.take_silent(now_));
  if (!silence_.take_beat(now_)) return;
  const auto beat = std::make_shared<const std::string>(encode(MessageType::kBeat));
  for (auto& [fd, seat] : seats_) {
    if (!seat.stream.has_output()) send(&seat, beat);
  }
}

// Of hosts that cannot be reached some ranks are silent a moment before the others.
void ArbiterLoop::judge_silent(const std::vector<Rank>& silent) {
  if (silent.empty()) return;
  std::vector<Rank> unheard = silence_.overdue(now_);
  unheard.insert(unheard.end(), silent.begin(), silent.end());
  const std::vector<Rank> seated = seated_ranks();
  std::set<Rank> heard(seated.begin(), seated.end());
  for (const Rank rank : unheard) heard.erase(rank);
  const std::set<Rank> elsewhere = not_here(unheard);
  // Without a standby they have no arbiter, and cannot go on.
  const bool may_go_on = std::any_of(elsewhere.begin(), elsewhere.end(), is_standby);
  if (may_go_on && !is_greater_part(heard, elsewhere)) {
    return end_minority(fmt::format("nothing was heard of {} for {} (UNISONO_SILENCE)",
                                    ranks_text(unheard), duration_text(silence_.limit())));
  }
  for (const Rank rank : silent) {
    decider_->condemn(rank, fmt::format("is silent: nothing was heard of it for {} "
                                        "(UNISONO_SILENCE); it is stopped, or its host cannot be "
                                        "reached",
                                        duration_text(silence_.limit())));
  }
}

// Everyone has gone to another arbiter, and nobody takes this one's word for anything. Its own rank
// learns why it is alone.
void ArbiterLoop::abdicate() {
  const std::string others =
      deposed_->successor < 0 ? "" : fmt::format("; rank {} holds it now", deposed_->successor);
  const FailureDecision decision{
      ErrorCode::kRankFailed, options_.self, kEveryCommunicator, 0,
      fmt::format("{}, which held the arbiter, was silent for {}: stopped, or its host not to be "
                  "reached; the job went on without it{}",
                  member_text(decider_->member(options_.self)), duration_text(deposed_->silence),
                  others)};
  const auto told = std::make_shared<const std::string>(encode(MessageType::kDecision, decision));
  for (auto& [fd, seat] : seats_) {
    if (seat.rank == options_.self) send(&seat, told);
    seat.stream.close();
  }
  seats_.clear();
  phase_ = Phase::kDone;
}

}  // namespace unisono::rendezvous
