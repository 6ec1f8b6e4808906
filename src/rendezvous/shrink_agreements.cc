#include "rendezvous/shrink_agreements.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/communicator_id.h"

namespace unisono::rendezvous {
namespace {

// Those of communicators that nobody shrinks any more make room for others.
constexpr std::size_t kAgreementsMax = 1024;

std::set<Rank> to_set(const std::vector<Rank>& ranks) { return {ranks.begin(), ranks.end()}; }

Status without(const Status& why) {
  return {why.code(), "the others go on without this rank: " + why.message(), why.rank()};
}

}  // namespace

Status ShrinkAgreements::on_message(Rank rank, ShrinkMessage message, TimePoint now) {
  if (message.step == ShrinkStep::kAsk) return on_ask(rank, message, now);
  if (message.step != ShrinkStep::kReady && message.step != ShrinkStep::kCannot) {
    return {ErrorCode::kProtocol, "a word about shrinking that only an arbiter says"};
  }
  const auto found = agreements_.find(message.communicator);
  // What was said about an attempt that is over.
  if (found == agreements_.end() || found->second.id == 0 || found->second.id != message.id) {
    return {};
  }
  Agreement& agreement = found->second;
  if (agreement.survivors.count(rank) == 0) {
    return {ErrorCode::kProtocol, "a word about a communicator of survivors that it is not in"};
  }
  if (message.step == ShrinkStep::kReady) {
    agreement.ready.insert(rank);
    return {};
  }
  refuse(message.communicator, agreement.survivors,
         {message.why.code(),
          fmt::format("rank {} cannot make the communicator of the survivors: {}", rank,
                      message.why.message()),
          rank});
  end(&agreement);
  return {};
}

Status ShrinkAgreements::on_ask(Rank rank, const ShrinkMessage& message, TimePoint now) {
  const std::set<Rank> members = to_set(message.members);
  if (members.count(rank) == 0) {
    return {ErrorCode::kProtocol, "the wish to shrink a communicator that it is not in"};
  }
  Agreement* const agreement = find_or_make(message.communicator);
  if (agreement == nullptr) {
    refuse(message.communicator, {rank},
           {ErrorCode::kOutOfResources,
            fmt::format("{} communicators are shrinking at once; shrink fewer", kAgreementsMax)});
    return {};
  }
  if (agreement->members.empty()) agreement->members = members;
  if (agreement->members != members || agreement->asked.count(rank) > 0 ||
      (agreement->id != 0 && agreement->survivors.count(rank) > 0)) {
    return {ErrorCode::kProtocol, "a wish to shrink that differs from what was said before"};
  }
  agreement->asked.insert(rank);
  agreement->due = std::min(agreement->due, now + message.patience);
  if (exclusion(*agreement, rank) != nullptr) {
    exclude(message.communicator, agreement, rank);
  }
  return {};
}

ShrinkAgreements::Agreement* ShrinkAgreements::find_or_make(std::uint32_t communicator) {
  const auto found = agreements_.find(communicator);
  if (found != agreements_.end()) return &found->second;
  if (agreements_.size() >= kAgreementsMax) {
    const auto idle = std::find_if(agreements_.begin(), agreements_.end(),
                                   [](const auto& entry) { return entry.second.is_idle(); });
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
    refuse(communicator, {rank}, without(*exclusion(*agreement, rank)));
  }
}

void ShrinkAgreements::on_decision(const FailureDecision& decision) {
  if (decision.failed_rank < 0) return;
  const Status why(decision.code, decision.message, decision.failed_rank);
  const bool is_out = decision.code == ErrorCode::kRankFailed ||
                      decision.code == ErrorCode::kProtocol ||
                      decision.code == ErrorCode::kRankLeft;
  if (decision.communicator == kEveryCommunicator) {
    if (is_out) on_gone(decision.failed_rank, why);
    return;
  }
  const bool is_late = decision.code == ErrorCode::kTimeout;
  if (!is_out && !is_late) return;
  Agreement* const agreement = find_or_make(decision.communicator);
  if (agreement == nullptr) return;
  if (is_late) {
    agreement->suspected.insert(decision.failed_rank);
    return;
  }
  agreement->excluded.emplace(decision.failed_rank, why);
  exclude(decision.communicator, agreement, decision.failed_rank);
}

void ShrinkAgreements::on_gone(Rank rank, const Status& why) {
  gone_.emplace(rank, why);
  for (auto& [communicator, agreement] : agreements_) exclude(communicator, &agreement, rank);
}

std::vector<ShrinkAgreements::Outgoing> ShrinkAgreements::take(TimePoint now) {
  for (auto& [communicator, agreement] : agreements_) advance(communicator, &agreement, now);
  return std::exchange(decided_, {});
}

TimePoint ShrinkAgreements::next_due() const {
  TimePoint due = decided_.empty() ? kNever : TimePoint::min();
  for (const auto& [communicator, agreement] : agreements_) {
    if (!agreement.asked.empty()) due = std::min(due, agreement.due);
  }
  return due;
}

void ShrinkAgreements::advance(std::uint32_t communicator, Agreement* agreement, TimePoint now) {
  if (agreement->id == 0) return gather(communicator, agreement, now);
  const bool lost_one =
      std::any_of(agreement->survivors.begin(), agreement->survivors.end(),
                  [&](Rank rank) { return exclusion(*agreement, rank) != nullptr; });
  if (lost_one) {
    const std::set<Rank> candidates = agreement->survivors;
    return form(communicator, agreement, candidates);
  }
  if (agreement->ready != agreement->survivors) return;
  for (const Rank rank : agreement->survivors) {
    decided_.push_back({rank, {ShrinkStep::kDone, communicator, agreement->id, {}, {}, {}}});
  }
  end(agreement);
}

// Waits for all that can still ask.
void ShrinkAgreements::gather(std::uint32_t communicator, Agreement* agreement, TimePoint now) {
  if (agreement->asked.empty()) return;
  std::vector<Rank> missing;
  for (const Rank rank : agreement->members) {
    const bool can_ask = exclusion(*agreement, rank) == nullptr;
    if (can_ask && agreement->asked.count(rank) == 0) missing.push_back(rank);
  }
  const bool all_suspected = std::all_of(missing.begin(), missing.end(), [&](Rank rank) {
    return agreement->suspected.count(rank) > 0;
  });
  if (all_suspected) agreement->due = std::min(agreement->due, now + kSuspectTime);
  if (!missing.empty() && now < agreement->due) return;
  for (const Rank rank : missing) {
    agreement->excluded.emplace(
        rank,
        Status(ErrorCode::kTimeout,
               fmt::format("rank {} had not asked to go on when the others did", rank), rank));
  }
  const std::set<Rank> candidates = std::exchange(agreement->asked, {});
  agreement->due = kNever;
  form(communicator, agreement, candidates);
}

void ShrinkAgreements::form(std::uint32_t communicator, Agreement* agreement,
                            const std::set<Rank>& candidates) {
  end(agreement);
  for (const Rank rank : candidates) {
    if (exclusion(*agreement, rank) == nullptr) agreement->survivors.insert(rank);
  }
  if (agreement->survivors.empty()) return;
  agreement->id = communicator_id(next_number_++, world_size_, world_size_);
  if (agreement->id == 0) {
    refuse(communicator, agreement->survivors,
           {ErrorCode::kOutOfResources,
            "communicators were shrunk as often as can be told apart in one job; start the job "
            "anew"});
    return end(agreement);
  }
  const std::vector<Rank> members(agreement->survivors.begin(), agreement->survivors.end());
  for (const Rank rank : members) {
    decided_.push_back({rank, {ShrinkStep::kForm, communicator, agreement->id, {}, members, {}}});
  }
}

void ShrinkAgreements::refuse(std::uint32_t communicator, const std::set<Rank>& ranks,
                              const Status& why) {
  for (const Rank rank : ranks) {
    decided_.push_back({rank, {ShrinkStep::kRefused, communicator, 0, {}, {}, why}});
  }
}

void ShrinkAgreements::end(Agreement* agreement) {
  agreement->id = 0;
  agreement->survivors.clear();
  agreement->ready.clear();
}

}  // namespace unisono::rendezvous
