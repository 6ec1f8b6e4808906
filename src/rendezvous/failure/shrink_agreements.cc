#include "rendezvous/failure/shrink_agreements.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/communicator_id.h"

namespace unisono::rendezvous {
namespace {

// Those of communicators that nobody shrinks any more make room for others.
constexpr std::size_t kAgreementsMax = 1024;
// While somebody is waited for, so that it shows when this side was not run.
constexpr Duration kLooksEvery = std::chrono::milliseconds(500);

constexpr const char* kLeftBehind = "had not gone on when the others did";

std::set<Rank> to_set(const std::vector<Rank>& ranks) { return {ranks.begin(), ranks.end()}; }

// `why` names ranks of the job, and is for the members of this communicator.
Status in_ranks_of_job(const Status& why, std::uint32_t communicator) {
  return {why.code(), with_ranks_of_job(why.message(), communicator), why.rank()};
}

// It may hold an arbiter, and is asked for that.
Status is_no_member(Rank rank) {
  return {ErrorCode::kRankLeft, fmt::format("rank {} is no member", rank), rank};
}

bool ends_membership(ErrorCode code) {
  return code == ErrorCode::kRankFailed || code == ErrorCode::kProtocol ||
         code == ErrorCode::kCorrupted || code == ErrorCode::kRankLeft;
}

}  // namespace

ShrinkAgreements::ShrinkAgreements(int world_size, int holder, const Evidence* evidence,
                                   std::chrono::milliseconds silence)
    : world_size_(world_size), evidence_(evidence), silence_(silence) {
  const std::uint32_t numbers = communicator_numbers(world_size) / kHoldersMax;
  next_number_ = static_cast<std::uint32_t>(holder) * numbers + 1;
  last_number_ = next_number_ + numbers - 1;
}

Status ShrinkAgreements::on_message(Rank rank, ShrinkMessage message, TimePoint now) {
  if (message.step == ShrinkStep::kAsk || message.step == ShrinkStep::kLeaves) {
    if (to_set(message.members).count(rank) == 0) {
      return {ErrorCode::kProtocol, "a word on shrinking a communicator that it is not in"};
    }
    if (message.step == ShrinkStep::kAsk) return on_ask(rank, message, now);
    on_leave(rank, message);
    return {};
  }
  if (message.step == ShrinkStep::kFinished) {
    on_finished(rank, message);
    return {};
  }
  if (message.step != ShrinkStep::kReady && message.step != ShrinkStep::kKnows &&
      message.step != ShrinkStep::kCannot) {
    return {ErrorCode::kProtocol, "a word on shrinking that only an arbiter says"};
  }
  const auto found = agreements_.find(message.communicator);
  // What was said about an attempt that is over.
  if (found == agreements_.end() || found->second.id == 0 || found->second.id != message.id) {
    return {};
  }
  Agreement& agreement = found->second;
  if (message.step == ShrinkStep::kKnows) {
    agreement.informed.insert(rank);
    return {};
  }
  if (agreement.survivors.count(rank) == 0) {
    return {ErrorCode::kProtocol, "a word on a communicator of survivors that it is not in"};
  }
  if (message.step == ShrinkStep::kReady) {
    agreement.ready.insert(rank);
    return {};
  }
  // Its words count the ranks of the survivors.
  refuse(message.communicator, agreement.survivors,
         {message.why.code(),
          fmt::format("rank {} of the job cannot make the communicator of the survivors: {}", rank,
                      message.why.message()),
          message.why.rank() < 0 ? rank : message.why.rank()});
  end(&agreement);
  return {};
}

void ShrinkAgreements::close(const Parts& parts) {
  parted_ = parts;
  for (auto& [communicator, agreement] : agreements_) {
    for (const std::set<Rank>* const ranks : {&agreement.asked, &agreement.survivors}) {
      for (const Rank rank : *ranks) refuse_parted(communicator, rank, parts);
    }
    end(&agreement);
  }
}

Status ShrinkAgreements::on_ask(Rank rank, const ShrinkMessage& message, TimePoint now) {
  if (parted_) {
    refuse_parted(message.communicator, rank, *parted_);
    return {};
  }
  Agreement* const agreement = find_or_make(message.communicator);
  if (agreement == nullptr) {
    refuse(message.communicator, {rank},
           {ErrorCode::kOutOfResources,
            fmt::format("{} communicators are shrinking at once; shrink fewer", kAgreementsMax)});
    return {};
  }
  if (agreement->members.empty()) agreement->members = to_set(message.members);
  if (agreement->members != to_set(message.members)) {
    return {ErrorCode::kProtocol, "a wish to shrink that differs from what was said before"};
  }
  if (message.id != 0) UNISONO_TRY(note_made(rank, message, agreement));
  if (exclusion(*agreement, rank) != nullptr) {
    refuse(message.communicator, {rank}, without(message.communicator, *agreement, rank));
  } else if (message.id != 0 && message.id == agreement->finished) {
    say_finished(message.communicator, agreement, rank);
  } else if (agreement->finished != 0 && !agreement->finishers.contains(rank)) {
    agreement->asked.insert(rank);
    leave_out(message.communicator, agreement, {rank}, kLeftBehind);
  } else if (agreement->survivors.count(rank) > 0) {
    // It has lost the attempt that the others are in.
    const std::set<Rank> candidates = agreement->survivors;
    form(message.communicator, agreement, candidates, now);
  } else {
    const bool is_first = agreement->asked.empty();
    agreement->patience =
        is_first ? message.patience : std::min<Duration>(agreement->patience, message.patience);
    agreement->due = std::min(is_first ? kNever : agreement->due, now + message.patience);
    agreement->asked.insert(rank);
    agreement->made[rank] = message.id;
  }
  return {};
}

// Of the attempts that a rank names the latest counts. Where ranks differ about its members each of
// what they say counts.
Status ShrinkAgreements::note_made(Rank rank, const ShrinkMessage& message, Agreement* agreement) {
  std::set<Rank> made = to_set(message.made);
  const bool are_members =
      std::includes(agreement->members.begin(), agreement->members.end(), made.begin(), made.end());
  if (!is_attempt(message.id) || !made.contains(rank) || !are_members) {
    return {ErrorCode::kProtocol, "a communicator of survivors that it cannot have made"};
  }
  agreement->made[rank] = message.id;
  std::erase_if(agreement->others, [&](const auto& other) {
    return std::none_of(agreement->made.begin(), agreement->made.end(),
                        [&](const auto& each) { return each.second == other.first; });
  });
  agreement->others[message.id].insert(std::move(made));
  return {};
}

void ShrinkAgreements::on_finished(Rank rank, const ShrinkMessage& message) {
  Agreement* const agreement = find_or_make(message.communicator);
  if (agreement == nullptr) return;
  // It has failed since, and the others are about to go on without it.
  if (agreement->id != 0 && gone_.contains(rank)) return;
  agreement->finishers.insert(rank);
  adopt(message.communicator, agreement, message.id);
}

// All had made it, or nobody would use it. Who has made it and not heard that asks this arbiter;
// the others have been left out, whether they have heard that or not.
void ShrinkAgreements::adopt(std::uint32_t communicator, Agreement* agreement, std::uint32_t id) {
  agreement->finished = id;
  std::erase_if(agreement->asked, [&](Rank each) {
    if (agreement->made[each] != id) return false;
    say_finished(communicator, agreement, each);
    return true;
  });
  std::set<Rank> behind = agreement->asked;
  behind.insert(agreement->survivors.begin(), agreement->survivors.end());
  for (const Rank each : agreement->finishers) behind.erase(each);
  leave_out(communicator, agreement, behind, kLeftBehind);
}

void ShrinkAgreements::say_finished(std::uint32_t communicator, Agreement* agreement, Rank rank) {
  say_done(rank, communicator, agreement->finished);
  agreement->finishers.insert(rank);
}

void ShrinkAgreements::on_leave(Rank rank, const ShrinkMessage& message) {
  // Nobody shrinks an attempt.
  if (is_attempt(message.communicator)) return;
  Agreement* const agreement = find_or_make(message.communicator);
  if (agreement == nullptr) return;
  if (agreement->members.empty()) agreement->members = to_set(message.members);
  agreement->excluded.emplace(
      rank, in_ranks_of_job({ErrorCode::kRankLeft,
                             fmt::format("rank {} has closed the communicator", rank), rank},
                            message.communicator));
  exclude(message.communicator, agreement, rank);
  agreement->left.insert(rank);
  // Who was late may still ask, and is to hear why.
  const bool nobody_asks = std::all_of(
      agreement->members.begin(), agreement->members.end(),
      [&](Rank member) { return agreement->left.count(member) > 0 || gone_.count(member) > 0; });
  if (nobody_asks) agreements_.erase(message.communicator);
}

// Room for another one is that of an idle one, if possible one that forgets nothing.
ShrinkAgreements::Agreement* ShrinkAgreements::find_or_make(std::uint32_t communicator) {
  const auto found = agreements_.find(communicator);
  if (found != agreements_.end()) return &found->second;
  if (agreements_.size() >= kAgreementsMax) {
    auto idle = agreements_.end();
    for (auto at = agreements_.begin(); at != agreements_.end(); ++at) {
      if (!at->second.is_idle()) continue;
      if (idle == agreements_.end()) idle = at;
      if (!at->second.excluded.empty()) continue;
      idle = at;
      break;
    }
    if (idle == agreements_.end()) return nullptr;
    agreements_.erase(idle);
  }
  return &agreements_[communicator];
}

const Status* ShrinkAgreements::exclusion(const Agreement& agreement, Rank rank) const {
  const auto gone = gone_.find(rank);
  if (gone != gone_.end()) return &gone->second;
  const auto excluded = agreement.excluded.find(rank);
  return excluded == agreement.excluded.end() ? nullptr : &excluded->second;
}

// Tells a rank that waits for an agreement why there is none for it.
void ShrinkAgreements::exclude(std::uint32_t communicator, Agreement* agreement, Rank rank) {
  const bool has_asked = agreement->asked.erase(rank) > 0;
  if (has_asked || agreement->survivors.count(rank) > 0) {
    refuse(communicator, {rank}, without(communicator, *agreement, rank));
  }
}

void ShrinkAgreements::on_decision(const FailureDecision& decision) {
  const Rank rank = decision.failed_rank;
  if (rank < 0) return;
  const Status why(decision.code, decision.message, rank);
  if (decision.communicator == kEveryCommunicator) return on_gone(rank, why);
  const bool is_late = decision.code == ErrorCode::kTimeout;
  if (!is_late && !ends_membership(decision.code)) return;
  if (is_attempt(decision.communicator)) return on_attempt_failed(decision);
  Agreement* const agreement = find_or_make(decision.communicator);
  if (agreement == nullptr) return;
  if (is_late) {
    agreement->suspected.insert(rank);
    return;
  }
  agreement->excluded.emplace(rank, why);
  exclude(decision.communicator, agreement, rank);
}

void ShrinkAgreements::on_attempt_failed(const FailureDecision& decision) {
  for (auto& [communicator, agreement] : agreements_) {
    if (agreement.id != decision.communicator) continue;
    agreement.excluded.emplace(
        decision.failed_rank,
        Status(decision.code, "in the communicator of the survivors: " + decision.message,
               decision.failed_rank));
    exclude(communicator, &agreement, decision.failed_rank);
  }
}

void ShrinkAgreements::on_gone(Rank rank, const Status& why) {
  gone_.emplace(rank, why);
  for (auto& [communicator, agreement] : agreements_) exclude(communicator, &agreement, rank);
}

bool ShrinkAgreements::is_pending() const {
  return std::any_of(agreements_.begin(), agreements_.end(),
                     [](const auto& entry) { return !entry.second.is_idle(); });
}

void ShrinkAgreements::on_wake(TimePoint now, Duration suspended) {
  const Duration slept = suspensions_.since_last(suspended);
  const Duration gap = woken_ == kNever ? Duration{} : now - woken_ + slept;
  woken_ = now;
  if (gap < 2 * kLooksEvery) return;
  for (auto& [communicator, agreement] : agreements_) {
    if (agreement.is_idle() || agreement.due == kNever) continue;
    const TimePoint due = now + std::min<Duration>(kSuspectTime, agreement.extra);
    if (due <= agreement.due) continue;
    agreement.extra -= due - std::max(now, agreement.due);
    agreement.due = due;
  }
}

std::vector<ShrinkAgreements::Outgoing> ShrinkAgreements::take(TimePoint now) {
  for (auto& [communicator, agreement] : agreements_) advance(communicator, &agreement, now);
  return std::exchange(said_, {});
}

TimePoint ShrinkAgreements::next_due() const {
  TimePoint due = said_.empty() && decided_.empty() ? kNever : TimePoint::min();
  for (const auto& [communicator, agreement] : agreements_) {
    if (!agreement.is_idle()) due = std::min(due, agreement.due);
  }
  if (woken_ != kNever && is_pending()) due = std::min(due, woken_ + kLooksEvery);
  return due;
}

void ShrinkAgreements::advance(std::uint32_t communicator, Agreement* agreement, TimePoint now) {
  if (agreement->id == 0) return gather(communicator, agreement, now);
  // Who is lost at last has been told so, and the others do without.
  if (agreement->ready == agreement->survivors && !has_lost_one(*agreement)) {
    return conclude(communicator, agreement, now);
  }
  const std::set<Rank> late = now < agreement->due ? std::set<Rank>() : late_ones(*agreement);
  if (!late.empty()) {
    leave_out(communicator, agreement, late,
              "had not made the communicator of the survivors in time");
    const Status& why = agreement->excluded.at(*late.begin());
    // Ends the calls by which the others make it.
    decided_.push_back({why.code(), why.rank(), agreement->id, 0, why.message()});
  }
  if (!has_lost_one(*agreement)) return;
  const std::set<Rank> candidates = agreement->survivors;
  form(communicator, agreement, candidates, now);
}

// Who is not heard, or does not hear this arbiter, holds up the others, which are late by that
// alone.
std::set<Rank> ShrinkAgreements::late_ones(const Agreement& agreement) const {
  std::set<Rank> late, unheard;
  for (const Rank rank : agreement.survivors) {
    if (agreement.ready.contains(rank)) continue;
    late.insert(rank);
    if (evidence_ != nullptr && !evidence_->may_answer(rank)) unheard.insert(rank);
  }
  return unheard.empty() ? late : unheard;
}

bool ShrinkAgreements::has_lost_one(const Agreement& agreement) const {
  return std::any_of(agreement.survivors.begin(), agreement.survivors.end(),
                     [&](Rank rank) { return exclusion(agreement, rank) != nullptr; });
}

// Waits for all that can still ask.
void ShrinkAgreements::gather(std::uint32_t communicator, Agreement* agreement, TimePoint now) {
  if (agreement->asked.empty()) return;
  std::set<Rank> missing;
  for (const Rank rank : agreement->members) {
    const bool can_ask = exclusion(*agreement, rank) == nullptr;
    if (can_ask && agreement->asked.count(rank) == 0) missing.insert(rank);
  }
  const bool all_suspected = std::all_of(missing.begin(), missing.end(), [&](Rank rank) {
    return agreement->suspected.count(rank) > 0;
  });
  if (all_suspected) agreement->due = std::min(agreement->due, now + kSuspectTime);
  const bool is_one_on_its_way = std::any_of(missing.begin(), missing.end(), [&](Rank rank) {
    return evidence_ != nullptr && evidence_->is_awaited(rank);
  });
  // However little patience the others have: it comes soon, or is missed.
  if (is_one_on_its_way) agreement->due = std::max(agreement->due, now + kLooksEvery);
  if (!missing.empty() && now < agreement->due) return;
  leave_out(communicator, agreement, missing, "had not asked to go on when the others did");
  const std::set<Rank> candidates = agreement->asked;
  agreement->open = open_attempts(*agreement);
  form(communicator, agreement, candidates, now);
}

// Not those that one of their members, which asks here, has not made; nor those of which all that
// live do.
std::vector<std::set<Rank>> ShrinkAgreements::open_attempts(const Agreement& agreement) const {
  std::vector<std::set<Rank>> open;
  if (evidence_ == nullptr) return open;
  for (const auto& [id, said] : agreement.others) {
    for (const std::set<Rank>& members : said) {
      if (may_be_used(agreement, id, members)) open.push_back(members);
    }
  }
  return open;
}

bool ShrinkAgreements::may_be_used(const Agreement& agreement, std::uint32_t id,
                                   const std::set<Rank>& members) const {
  bool may_others = false;
  for (const Rank rank : members) {
    const auto made = agreement.made.find(rank);
    const bool is_here = agreement.asked.contains(rank) && made != agreement.made.end();
    if (is_here && made->second != id) return false;
    may_others = may_others || (!is_here && !evidence_->has_ended(rank));
  }
  return may_others;
}

void ShrinkAgreements::leave_out(std::uint32_t communicator, Agreement* agreement,
                                 const std::set<Rank>& late, const char* what) {
  for (const Rank rank : late) {
    agreement->excluded.emplace(
        rank, in_ranks_of_job({ErrorCode::kTimeout, fmt::format("rank {} {}", rank, what), rank},
                              communicator));
    exclude(communicator, agreement, rank);
  }
}

void ShrinkAgreements::form(std::uint32_t communicator, Agreement* agreement,
                            const std::set<Rank>& candidates, TimePoint now) {
  std::vector<std::set<Rank>> open = std::move(agreement->open);
  end(agreement);
  agreement->open = std::move(open);
  for (const Rank rank : candidates) {
    if (exclusion(*agreement, rank) == nullptr) agreement->survivors.insert(rank);
  }
  if (agreement->survivors.empty()) return;
  if (const auto lacking = lacks(*agreement, knowing_soon(*agreement))) {
    return refuse_minority(communicator, agreement, *lacking);
  }
  const bool has_number = next_number_ <= last_number_;
  agreement->id = has_number ? communicator_id(next_number_++, world_size_, world_size_) : 0;
  if (agreement->id == 0) {
    refuse(communicator, agreement->survivors,
           {ErrorCode::kOutOfResources,
            "communicators were shrunk as often as can be told apart in one job; start the job "
            "anew"});
    return end(agreement);
  }
  agreement->due = now + agreement->patience + silence_ + kSuspectTime;
  const std::vector<Rank> members(agreement->survivors.begin(), agreement->survivors.end());
  for (const Rank rank : members) {
    said_.push_back({rank, {ShrinkStep::kForm, communicator, agreement->id, {}, members, {}}});
  }
  if (!lacks(*agreement, knowing(*agreement))) return;
  std::set<Rank> all = agreement->members;
  for (const Rank rank : evidence_->other_holders()) all.insert(rank);
  inform(communicator, *agreement, all);
}

// Whoever is not connected does not hear it.
void ShrinkAgreements::inform(std::uint32_t communicator, const Agreement& agreement,
                              const std::set<Rank>& ranks) {
  const IsHere knows = knowing(agreement);
  for (const Rank rank : ranks) {
    if (knows(rank)) continue;
    const bool is_excluded = exclusion(agreement, rank) != nullptr;
    const Status why = is_excluded ? without(communicator, agreement, rank) : is_no_member(rank);
    said_.push_back({rank, {ShrinkStep::kLeftOut, communicator, agreement.id, {}, {}, why}});
  }
}

// Beyond a partition nobody has said that it knows, however long the silence is by which that
// shows.
void ShrinkAgreements::conclude(std::uint32_t communicator, Agreement* agreement, TimePoint now) {
  const std::optional<Parts> lacking = lacks(*agreement, knowing(*agreement));
  if (!lacking) {
    for (const Rank rank : agreement->survivors) say_done(rank, communicator, agreement->id);
    inform(communicator, *agreement, agreement->members);
    agreement->finished = agreement->id;
    agreement->finishers = agreement->survivors;
    return end(agreement);
  }
  if (now < agreement->due && !lacks(*agreement, knowing_soon(*agreement))) return;
  refuse_minority(communicator, agreement, *lacking);
}

ShrinkAgreements::IsHere ShrinkAgreements::knowing(const Agreement& agreement) {
  return [&agreement](Rank rank) {
    return agreement.survivors.contains(rank) || agreement.informed.contains(rank);
  };
}

ShrinkAgreements::IsHere ShrinkAgreements::knowing_soon(const Agreement& agreement) const {
  return [this, knows = knowing(agreement)](Rank rank) {
    return knows(rank) || (evidence_ != nullptr && evidence_->may_answer(rank));
  };
}

std::optional<Parts> ShrinkAgreements::lacks(const Agreement& agreement,
                                             const IsHere& is_here) const {
  if (evidence_ == nullptr) return {};
  const std::vector<Rank> holders = evidence_->other_holders();
  const bool may_others = std::any_of(holders.begin(), holders.end(), [&](Rank rank) {
    return !is_here(rank) && !evidence_->has_ended(rank);
  });
  if (!may_others) return {};
  std::set<Rank> members = agreement.members;
  for (const Rank rank : agreement.left) members.erase(rank);
  std::vector<const std::set<Rank>*> each_of{&members};
  for (const std::set<Rank>& attempt : agreement.open) each_of.push_back(&attempt);
  for (const std::set<Rank>* const ranks : each_of) {
    Parts parts = parts_of(*ranks, agreement.survivors, is_here, *evidence_);
    if (!may_go_on(parts)) return parts;
  }
  return {};
}

void ShrinkAgreements::refuse_minority(std::uint32_t communicator, Agreement* agreement,
                                       const Parts& parts) {
  for (const Rank rank : agreement->survivors) refuse_parted(communicator, rank, parts);
  end(agreement);
}

bool ShrinkAgreements::is_attempt(std::uint32_t communicator) const {
  return giver_of(communicator, world_size_) == world_size_;
}

void ShrinkAgreements::say_done(Rank rank, std::uint32_t communicator, std::uint32_t id) {
  said_.push_back({rank, {ShrinkStep::kDone, communicator, id, {}, {}, {}}});
}

void ShrinkAgreements::refuse(std::uint32_t communicator, const std::set<Rank>& ranks,
                              const Status& why) {
  for (const Rank rank : ranks) {
    said_.push_back({rank, {ShrinkStep::kRefused, communicator, 0, {}, {}, why}});
  }
}

// What `rank`, which is excluded, hears. The job's word on a rank counts ranks of the job; any
// other is its communicator's.
Status ShrinkAgreements::without(std::uint32_t communicator, const Agreement& agreement,
                                 Rank rank) const {
  const Status& known = *exclusion(agreement, rank);
  const Status why = gone_.contains(rank) ? in_ranks_of_job(known, communicator) : known;
  return {why.code(), "the others go on without this rank: " + why.message(), why.rank()};
}

void ShrinkAgreements::refuse_parted(std::uint32_t communicator, Rank rank, const Parts& parts) {
  refuse(communicator, {rank}, in_ranks_of_job(partitioned(rank, parts), communicator));
}

void ShrinkAgreements::end(Agreement* agreement) {
  agreement->id = 0;
  agreement->due = kNever;
  agreement->asked.clear();
  agreement->made.clear();
  agreement->others.clear();
  agreement->open.clear();
  agreement->survivors.clear();
  agreement->ready.clear();
  agreement->informed.clear();
}

}  // namespace unisono::rendezvous
