// The part of the arbiter that is there for the case that arbiters are lost: how a standby's takes
// over, who is silent, and what an arbiter does that the job has gone on without.
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "rendezvous/failure/standby.h"
#include "rendezvous/messages/control_address.h"
#include "rendezvous/messages/peer_information.h"
#include "rendezvous/messages/rank_text.h"
#include "rendezvous/sessions/serving_arbiter.h"

namespace unisono::rendezvous {

void ServingArbiter::on_rejoin(int connection, RejoinMessage told, TimePoint now) {
  const Rank rank = told.rank;
  std::uint32_t& latest = attempts_[rank];
  if (told.attempt < latest) return links_.close(connection);
  latest = told.attempt;
  deposers_.erase(rank);
  // It has come anew, which is no death.
  const auto earlier = connections_.find(rank);
  if (earlier != connections_.end()) close(earlier->second);
  if (told.is_goodbye()) return note_goodbye(connection, std::move(told));
  // Its part may be the greater one.
  if (has_ended_minority_) return answer(connection, encode(MessageType::kPartEnded));
  add_seat(connection, rank);
  succession_->on_come(rank, now);
  ended_.erase(rank);
  own_word_.erase(rank);
  if (phase_ == Phase::kServing) {
    learn(std::move(told));
    welcome_back(connection, now);
  } else {
    rejoined_.push_back(std::move(told));
    if (succession_->has_taken_over()) take_over(now);
  }
}

// The rank does not count as one that has ended: it may have gone on with others, which are not
// heard here. It tells the other standbys itself.
void ServingArbiter::note_goodbye(int connection, RejoinMessage told) {
  silence_.forget(told.rank);
  succession_->on_withdrawn(told.rank);
  answer(connection, encode_rank(MessageType::kDeparted, told.rank));
  if (phase_ == Phase::kServing) {
    learn(std::move(told));
  } else {
    rejoined_.push_back({std::move(told.job_id), told.rank, {}, {told.rank}, {}, {}});
  }
}

void ServingArbiter::answer(int connection, std::string bytes) {
  links_.send(connection, std::make_shared<const std::string>(std::move(bytes)));
  links_.close(connection);
}

void ServingArbiter::learn(RejoinMessage told) {
  std::erase(told.dead, options_.self);  // it is here
  for (const Rank rank : told.ended) {
    if (told.rank != options_.self) {
      own_word_.erase(rank);
    } else if (!ended_.contains(rank) && !same_host(decider_.member(rank), self())) {
      own_word_.insert(rank);
    }
    const bool has_left = std::find(told.left.begin(), told.left.end(), rank) != told.left.end();
    // Who has left is told to those that need to know (tell_departure()).
    if (has_left) {
      ended_.insert(rank);
    } else {
      note_ended(rank);
    }
  }
  follows_death_ = follows_death_ || !told.dead.empty();
  decider_.learn(told);
  for (const std::vector<Rank>* const gone : {&told.dead, &told.left}) {
    for (const Rank rank : *gone) succession_->on_gone(rank);
  }
  for (const Rank rank : told.left) {
    shrinks_.on_gone(rank, {ErrorCode::kRankLeft, fmt::format("rank {} left the job", rank), rank});
  }
}

void ServingArbiter::take_over(TimePoint now) {
  log::info(fmt::format("rank {} holds the arbiter from now on", options_.self));
  phase_ = Phase::kServing;
  links_.on_taken_over();
  for (Rank rank = 0; rank < size_; ++rank) {
    if (!succession_->has_come(rank)) decider_.await(rank);
  }
  for (RejoinMessage& told : std::exchange(rejoined_, {})) learn(std::move(told));
  for (const auto& [connection, rank] : seats_) welcome_back(connection, now);
}

// What is said to it may be lost, and then it goes on elsewhere: until it says that it has come it
// does not count for this part, and nothing is decided on its links.
void ServingArbiter::welcome_back(int connection, TimePoint now) {
  const Rank rank = seats_.at(connection);
  silence_.on_heard(rank, now);
  unanswered_.insert(rank);
  decider_.await(rank);
  links_.send(connection, std::make_shared<const std::string>(encode(MessageType::kSeated)));
  for (const Said& said : said_) {
    if (said.target == -1 || said.target == rank) links_.send(connection, said.bytes);
  }
}

void ServingArbiter::look_after_succession(TimePoint now) {
  if (succession_->refuses(now)) {
    say(-1, answer_without_own_rank(now));
    close_all();
    std::erase_if(rejoined_, [](const RejoinMessage& told) { return !told.is_goodbye(); });
    succession_->on_refused();
  }
  judge_missing(succession_->take_missing(now), now);
}

// After a stop of this process its own rank has heard nothing that proves that the arbiter lives,
// until the next beats come or are missed. Where it does without one this standby's is none either.
std::string ServingArbiter::answer_without_own_rank(TimePoint now) const {
  const TimePoint heard = options_.heard_at ? options_.heard_at() : now;
  if (heard == TimePoint::min()) return encode(MessageType::kPartEnded);
  if (now - heard > options_.silence / 2) return encode(MessageType::kNotKnown);
  return encode_refusal(
      {ErrorCode::kRendezvous, fmt::format("rank {} hears the arbiter", options_.self)});
}

void ServingArbiter::judge_missing(const std::vector<Rank>& missing, TimePoint now) {
  if (missing.empty()) return;
  // Of an arbiter that is not heard too nobody knows that it is dead.
  std::vector<Rank> unheard;
  for (Rank rank = 0; rank < size_; ++rank) {
    if (!succession_->has_come(rank) && !has_ended(rank)) unheard.push_back(rank);
  }
  const Parts parts{succession_->came(), not_here(unheard)};
  if (!may_go_on(parts)) return end_minority(parts, now);
  for (const Rank rank : missing) {
    decider_.condemn(rank, fmt::format("died, is stopped or cannot be reached: it did not come "
                                       "within {} to rank {}, which holds the arbiter now",
                                       duration_text(succession_->come_within()), options_.self));
  }
}

// Between processes of a host there is no partition.
std::set<Rank> ServingArbiter::not_here(const std::vector<Rank>& ranks) const {
  const Member& here = self();
  std::set<Rank> elsewhere;
  for (const Rank rank : ranks) {
    if (!same_host(decider_.member(rank), here)) elsewhere.insert(rank);
  }
  return elsewhere;
}

std::vector<Rank> ServingArbiter::other_holders() const {
  std::vector<Rank> holders = standbys_;
  holders.push_back(0);
  std::erase(holders, options_.self);
  return holders;
}

bool ServingArbiter::is_minority(const Parts& parts, TimePoint now) const {
  const std::vector<Rank> holders = other_holders();
  return !may_go_on(parts) && std::any_of(holders.begin(), holders.end(), [&](Rank rank) {
    const bool is_with_this = is_heard(rank, now) && !unanswered_.contains(rank);
    return !has_ended(rank) && !is_with_this;
  });
}

// The others may have an arbiter, and go on. Where the network comes back just now, their
// connections are whole yet, and this part's end is none of theirs.
void ServingArbiter::end_minority(const Parts& parts, TimePoint now) {
  if (has_ended_minority_ || parts.here.empty()) return;
  shrinks_.close(parts);
  std::set<Rank> others = parts.elsewhere;
  for (const auto& [rank, until] : missed_until_) {
    if (now < until && !same_host(decider_.member(rank), self())) others.insert(rank);
  }
  // Of an arbiter whose rank has left nobody is to say that it failed.
  const auto word = own_rank_left_ ? MessageType::kFarewell : MessageType::kPartEnded;
  for (const Rank rank : others) say(rank, encode(word));
  has_ended_minority_ = true;
  // Each hears of its own end: one rank's is none of communicators that it is not in.
  for (const Rank rank : seated_ranks()) {
    if (others.contains(rank)) continue;
    const Status told = partitioned(rank, parts);
    say(rank,
        encode(MessageType::kDecision, {told.code(), rank, kEveryCommunicator, 0, told.message()}));
  }
}

void ServingArbiter::look_after_silence(TimePoint now) {
  judge_silent(silence_.take_silent(now), now);
  const std::vector<Rank> overdue = silence_.overdue(now);
  std::set<Rank> leaving(overdue.begin(), overdue.end());
  // Most do not hear this arbiter, and may be about to go to another one.
  if (!deaf_.empty() && is_minority(heard_parts(now), now)) leaving.merge(std::set(deaf_));
  decider_.note_overdue(std::move(leaving));
  decider_.note_deaf(deaf_);
  if (!silence_.take_beat(now)) return;
  ask_witnesses(overdue);
  const auto beat = std::make_shared<const std::string>(encode(MessageType::kBeat));
  for (const auto& [connection, rank] : seats_) {
    if (!links_.is_behind(connection)) links_.send(connection, beat);
  }
}

// Of hosts that cannot be reached some ranks are silent a moment before the others, and those that
// were silent before stay seated until their connections break.
Parts ServingArbiter::heard_parts(TimePoint now) const {
  std::vector<Rank> unheard = silence_.overdue(now);
  Parts parts;
  for (const Rank rank : seated_ranks()) {
    if (silence_.listens_for(rank) && !deaf_.contains(rank)) {
      parts.here.insert(rank);
    } else {
      unheard.push_back(rank);
    }
  }
  for (const Rank rank : unheard) parts.here.erase(rank);
  parts.elsewhere = not_here(unheard);
  // Where this rank has left, the others may all be of one host.
  const auto is_beside = [&](Rank silent) {
    return std::any_of(parts.here.begin(), parts.here.end(), [&](Rank rank) {
      return same_host(decider_.member(silent), decider_.member(rank));
    });
  };
  if (own_rank_left_ && std::all_of(parts.elsewhere.begin(), parts.elsewhere.end(), is_beside)) {
    parts.elsewhere.clear();
  }
  return parts;
}

void ServingArbiter::judge_silent(const std::vector<Rank>& silent, TimePoint now) {
  if (silent.empty() || has_ended_minority_) return;
  const Parts parts = heard_parts(now);
  if (is_minority(parts, now)) return end_minority(parts, now);
  std::set<HostKey> heard;
  std::map<HostKey, int> unheard;
  for (const Rank rank : parts.here) heard.insert(host_of(rank));
  for (const Rank rank : parts.elsewhere) ++unheard[host_of(rank)];
  for (const Rank rank : silent) {
    // Who has only asked where this arbiter is, and gone again, is no part of it.
    if (connections_.contains(rank) && !parts.elsewhere.contains(rank)) note_ended(rank);
    const HostKey host = host_of(rank);
    const bool is_whole_host = unheard[host] > 1 && !heard.contains(host);
    const auto place_of = [this](Rank witness) {
      return fmt::format("rank {} on host {}", witness, decider_.member(witness).host_name);
    };
    decider_.condemn(rank,
                     fmt::format("is silent: nothing was heard of it for {} (UNISONO_SILENCE){}",
                                 duration_text(silence_.limit()),
                                 witnesses_.text_on(rank, is_whole_host, place_of)));
  }
}

// Also where this side was stopped before: who is not overdue has spoken since.
void ServingArbiter::ask_witnesses(const std::vector<Rank>& overdue) {
  std::vector<Rank> heard;
  if (!overdue.empty()) heard = seated_ranks();
  std::erase_if(heard, [&](Rank rank) {
    return !silence_.listens_for(rank) || deaf_.contains(rank) ||
           std::binary_search(overdue.begin(), overdue.end(), rank);
  });
  const Witnesses::Ranks ranks{[this](Rank rank) { return host_of(rank); },
                               [this](Rank rank) { return has_probe_port(decider_.member(rank)); },
                               host_key(self())};
  for (const auto& [witness, rank, look] : witnesses_.ask(overdue, heard, ranks)) {
    const bool sees = look == Witnesses::Look::kSight;
    say(witness, encode_rank(sees ? MessageType::kAskSight : MessageType::kAskProbe, rank));
  }
}

// Everyone has gone to another arbiter, and nobody takes this one's word for anything. Its own rank
// learns why it is alone.
void ServingArbiter::abdicate() {
  const std::string others =
      deposed_->successor < 0 ? "" : fmt::format("; rank {} holds it now", deposed_->successor);
  const FailureDecision decision{
      ErrorCode::kRankFailed, options_.self, kEveryCommunicator, 0,
      fmt::format("{}, which held the arbiter, was silent for {}: stopped, or its host not to be "
                  "reached; the job went on without it{}",
                  member_text(self()), duration_text(deposed_->silence), others)};
  say(options_.self, encode(MessageType::kDecision, decision));
  close_all();
  phase_ = Phase::kDone;
}

}  // namespace unisono::rendezvous
