#include "rendezvous/failure/failure_decider.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/communicator_id.h"
#include "base/keep_latest.h"
#include "rendezvous/messages/rank_text.h"

namespace unisono::rendezvous {
namespace {

// A program makes tens of communicators. Beyond this a rank is making numbers up, and its
// failures are no longer remembered one by one.
constexpr std::size_t kCommunicatorsMax = 1 << 20;
constexpr std::size_t kTimeoutsMax = 1024;
constexpr std::size_t kComparisonsMax = 1024;
// Reports of one rank that are remembered.
constexpr std::size_t kReportsMax = 64;

// What was said of the same operation before.
void forget(const WaitMessage& message, std::deque<WaitMessage>* reports) {
  std::erase_if(*reports, [&](const WaitMessage& known) {
    return known.communicator == message.communicator && known.sequence == message.sequence;
  });
}

}  // namespace

bool DecisionLedger::admit(const FailureDecision& decision) {
  const Rank rank = decision.failed_rank;
  if (decision.communicator == kEveryCommunicator) {
    if (decision.code != ErrorCode::kRankLeft) return ranks_.insert(rank).second;
    return !has_given_up(rank) && left_.insert(rank).second;
  }
  if (communicators_.size() >= kCommunicatorsMax) return false;
  return communicators_.insert(decision.communicator).second;
}

FailureDecider::FailureDecider(std::vector<Member> members, std::chrono::milliseconds silence)
    : members_(std::move(members)),
      link_grace_(link_grace_time(silence)),
      after_word_(after_word_time(silence)),
      presence_(members_.size(), Presence::kHere) {}

void FailureDecider::on_goodbye(Rank rank) {
  if (presence(rank) != Presence::kHere) return;
  presence_[static_cast<std::size_t>(rank)] = Presence::kLeft;
  forget_words(rank);
  for (const auto& [reporter, reports] : waits_) {
    if (waits_for(reporter, rank)) tell_that_peer_left(reporter, rank);
  }
}

void FailureDecider::on_closed(Rank rank, const std::string& how) {
  condemn(rank, "died: its control connection " + how);
}

void FailureDecider::condemn(Rank rank, const std::string& why) {
  if (presence(rank) != Presence::kHere) return;
  bury(rank);
  broadcast({ErrorCode::kRankFailed, rank, kEveryCommunicator, 0,
             fmt::format("{} {}", member_text(member(rank)), why)});
}

void FailureDecider::bury(Rank rank) {
  awaited_.erase(rank);
  presence_[static_cast<std::size_t>(rank)] = Presence::kDead;
  forget_words(rank);
}

void FailureDecider::learn(const RejoinMessage& told) {
  for (const FailureDecision& decision : told.decisions) {
    const bool is_of_rank = decision.communicator == kEveryCommunicator &&
                            decision.failed_rank >= 0 && decision.code != ErrorCode::kRankLeft;
    if (is_of_rank) bury(decision.failed_rank);
    if (is_of_rank || decision.communicator != kEveryCommunicator) broadcast(decision);
  }
  for (const Rank rank : told.left) {
    if (presence(rank) != Presence::kHere) continue;
    awaited_.erase(rank);
    on_goodbye(rank);
  }
  for (const Rank rank : told.dead) {
    condemn(rank, fmt::format("failed: rank {} found it dead or silent", told.rank));
  }
}

void FailureDecider::on_violation(Rank rank, const std::string& what) {
  if (presence(rank) == Presence::kDead) return;
  bury(rank);
  broadcast({ErrorCode::kProtocol, rank, kEveryCommunicator, 0,
             fmt::format("{} sent the arbiter {}", member_text(member(rank)), what)});
}

void FailureDecider::note(Rank rank, WaitMessage message) {
  std::deque<WaitMessage>& reports = waits_[rank];
  forget(message, &reports);
  reports.push_back(std::move(message));
  if (reports.size() > kReportsMax) reports.pop_front();
}

bool FailureDecider::waits_for(Rank rank, Rank peer) const {
  const auto found = waits_.find(rank);
  if (found == waits_.end()) return false;
  return std::any_of(found->second.begin(), found->second.end(), [peer](const auto& report) {
    const std::vector<Rank>& ranks = report.waiting_for;
    return std::find(ranks.begin(), ranks.end(), peer) != ranks.end();
  });
}

// A communicator's operations are entered in order: who waits in a later one has been here.
bool FailureDecider::has_entered(Rank rank, const Operation& operation) const {
  const auto is_behind = [&](std::uint32_t communicator, std::uint64_t sequence) {
    return communicator == operation.first && sequence >= operation.second &&
           sequence != kPointToPointSequence;
  };
  const auto ended = ended_well_.find(rank);
  if (ended != ended_well_.end() &&
      std::any_of(ended->second.begin(), ended->second.end(),
                  [&](const Operation& each) { return is_behind(each.first, each.second); })) {
    return true;
  }
  const auto found = waits_.find(rank);
  return found != waits_.end() &&
         std::any_of(found->second.begin(), found->second.end(), [&](const WaitMessage& report) {
           return is_behind(report.communicator, report.sequence);
         });
}

void FailureDecider::on_waiting(Rank rank, WaitMessage message) {
  if (presence(rank) != Presence::kHere) return;
  // Two ranks without a link between them have nobody else to hear it from.
  for (const Rank peer : message.waiting_for) {
    if (presence(peer) == Presence::kLeft) tell_that_peer_left(rank, peer);
  }
  note(rank, std::move(message));
}

// Where all have done without a decision there is none: whoever held them up does not any more.
void FailureDecider::on_ended_well(Rank rank, const WaitMessage& message) {
  if (presence(rank) != Presence::kHere) return;
  const Operation operation{message.communicator, message.sequence};
  keep_latest(operation, kReportsMax, &ended_well_[rank]);
  const auto waits = waits_.find(rank);
  if (waits != waits_.end()) {
    forget(message, &waits->second);
    if (waits->second.empty()) waits_.erase(waits);
  }
  const auto found = timeouts_.find(operation);
  if (found == timeouts_.end()) return;
  found->second.late.erase(rank);
  if (found->second.late.empty()) timeouts_.erase(found);
}

void FailureDecider::forget_words(Rank rank) {
  waits_.erase(rank);
  ended_well_.erase(rank);
  for (auto& [operation, timeout] : timeouts_) timeout.late.erase(rank);
  std::erase_if(timeouts_, [](const auto& entry) { return entry.second.late.empty(); });
}

void FailureDecider::on_timed_out(Rank rank, WaitMessage message, TimePoint now) {
  if (presence(rank) != Presence::kHere) return;
  const Operation operation{message.communicator, message.sequence};
  if (timeouts_.size() < kTimeoutsMax || timeouts_.count(operation) > 0) {
    const Timeout first{.due = now + kGatherTime, .reporter = rank, .call = message.call};
    Timeout& timeout = timeouts_.try_emplace(operation, first).first->second;
    timeout.arrived.insert(rank);
    timeout.late.insert(rank);
    timeout.members.insert(message.members.begin(), message.members.end());
    timeout.awaited.insert(message.waiting_for.begin(), message.waiting_for.end());
  }
  note(rank, std::move(message));
  const std::set<Rank> awaited = awaited_in(operation);
  ask_for_waits({awaited.begin(), awaited.end()}, now);
}

std::set<Rank> FailureDecider::awaited_in(const Operation& operation) const {
  std::set<Rank> awaited;
  for (const auto& [rank, reports] : waits_) {
    for (const WaitMessage& wait : reports) {
      if (Operation{wait.communicator, wait.sequence} != operation) continue;
      awaited.insert(wait.waiting_for.begin(), wait.waiting_for.end());
    }
  }
  return awaited;
}

void FailureDecider::ask_for_waits(const std::vector<Rank>& ranks, TimePoint now) {
  for (const Rank rank : ranks) {
    if (presence(rank) != Presence::kHere) continue;
    const auto [asked, is_first] = asked_.try_emplace(rank, now);
    if (!is_first && now - asked->second < kGatherTime) continue;
    asked->second = now;
    answered_.erase(rank);
    decided_.push_back({rank, {}, MessageType::kAskWaits});
  }
}

void FailureDecider::on_waits(Rank rank, WaitsMessage message, TimePoint now) {
  if (presence(rank) != Presence::kHere || asked_.count(rank) == 0) return;
  if (message.is_all) {
    answered_.insert(rank);
    waits_.erase(rank);
  }
  for (WaitMessage& wait : message.waits) {
    ask_for_waits(wait.waiting_for, now);
    note(rank, std::move(wait));
  }
}

// What it reported before it was asked may be over, but for calls whose deadline has passed.
std::set<Rank> FailureDecider::awaited_by(Rank rank) const {
  std::set<Rank> awaited;
  const auto found = waits_.find(rank);
  if (found == waits_.end()) return awaited;
  for (const WaitMessage& wait : found->second) {
    const auto timeout = timeouts_.find(Operation{wait.communicator, wait.sequence});
    const bool is_late = timeout != timeouts_.end() && timeout->second.late.contains(rank);
    if (!is_late && answered_.count(rank) == 0) continue;
    awaited.insert(wait.waiting_for.begin(), wait.waiting_for.end());
  }
  return awaited;
}

std::vector<Rank> FailureDecider::chain_from(const std::set<Rank>& ranks,
                                             std::set<Rank>* ends) const {
  std::vector<Rank> chain(ranks.begin(), ranks.end());
  std::set<Rank> seen = ranks;
  for (std::size_t at = 0; at < chain.size(); ++at) {
    const Rank rank = chain[at];
    const bool is_here = presence(rank) == Presence::kHere;
    const std::set<Rank> awaited = is_here ? awaited_by(rank) : std::set<Rank>();
    if (awaited.empty()) ends->insert(rank);
    for (const Rank each : awaited) {
      if (seen.insert(each).second) chain.push_back(each);
    }
  }
  return chain;
}

void FailureDecider::on_failure(FailureDecision decision) {
  // Which rank is alive is known here better than there.
  if (decision.failed_rank >= 0 && decision.code == ErrorCode::kRankFailed &&
      presence(decision.failed_rank) == Presence::kDead) {
    return;
  }
  broadcast(std::move(decision));
}

void FailureDecider::on_broken_link(Rank reporter, const BrokenLinkMessage& message, TimePoint now,
                                    bool awaits_word) {
  const Rank peer = message.peer;
  if (peer == reporter) return on_violation(reporter, "a report about a link to itself");
  if (presence(peer) == Presence::kDead) return;
  if (presence(peer) == Presence::kLeft && !is_nonsense(message.code)) {
    return tell_that_peer_left(reporter, peer);
  }
  broken_with_[reporter].insert(peer);
  broken_with_[peer].insert(reporter);
  const TimePoint earliest = now + link_grace_;
  const bool awaits = awaits_word && !is_nonsense(message.code);
  BrokenLink reported{.earliest = earliest,
                      .due = awaits ? kNever : earliest,
                      .reporter = reporter,
                      .peer = peer,
                      .reason = message.reason,
                      .code = message.code};
  const auto [known, is_new] = links_.try_emplace(std::minmax(reporter, peer), reported);
  if (is_new && awaits && awaited_words_.insert(peer).second) {
    decided_.push_back({peer, {}, MessageType::kAskWord});
  }
  // Who was sent nonsense hangs up, and the sender may be the first to complain of that.
  if (!is_new && is_nonsense(reported.code) && !is_nonsense(known->second.code)) {
    reported.due = known->second.earliest;
    known->second = reported;
  }
}

void FailureDecider::on_heard(Rank rank, TimePoint now) {
  if (awaited_words_.erase(rank) == 0) return;
  for (auto& [pair, link] : links_) {
    if (link.peer == rank)
      link.due = std::min(link.due, std::max(link.earliest, now + after_word_));
  }
}

std::size_t FailureDecider::broken_links_of(Rank rank) const {
  const auto found = broken_with_.find(rank);
  if (found == broken_with_.end()) return 0;
  return static_cast<std::size_t>(
      std::count_if(found->second.begin(), found->second.end(), [&](Rank peer) {
        return presence(peer) == Presence::kHere && awaited_.count(peer) == 0 &&
               !ledger_.has_given_up(peer);
      }));
}

// Everyone is asked at once; who sees the difference as well has answered by saying so.
void FailureDecider::on_differing(Rank reporter, CallsMessage message, TimePoint now) {
  if (presence(reporter) != Presence::kHere) return;
  const std::uint32_t communicator = message.communicator;
  const auto known = comparisons_.find(communicator);
  if (known != comparisons_.end()) return known->second.add(reporter, std::move(message));
  if (comparisons_.size() >= kComparisonsMax || ledger_.has_judged(communicator)) return;
  CallComparison begun(reporter, std::move(message), now, now + kCallsTime);
  ask_unheard(communicator, begun);
  comparisons_.emplace(communicator, std::move(begun));
}

void FailureDecider::ask_calls(Rank rank, std::uint32_t communicator) {
  decided_.push_back(
      {rank, {ErrorCode::kMismatch, -1, communicator, 0, ""}, MessageType::kAskCalls});
}

void FailureDecider::on_calls(Rank rank, CallsMessage message) {
  const auto known = comparisons_.find(message.communicator);
  if (known != comparisons_.end()) known->second.add(rank, std::move(message));
}

// It is here and has not told that it made the call.
bool FailureDecider::is_unheard(Rank rank, const CallComparison& comparison) const {
  return presence(rank) == Presence::kHere && !comparison.has_heard(rank);
}

bool FailureDecider::has_heard_all(const CallComparison& comparison) const {
  const std::set<Rank>& members = comparison.members();
  return std::none_of(members.begin(), members.end(),
                      [&](Rank rank) { return is_unheard(rank, comparison); });
}

void FailureDecider::ask_unheard(std::uint32_t communicator, const CallComparison& comparison) {
  for (const Rank rank : comparison.members()) {
    if (is_unheard(rank, comparison)) ask_calls(rank, communicator);
  }
}

std::vector<FailureDecider::Outgoing> FailureDecider::take(TimePoint now) {
  for (auto at = comparisons_.begin(); at != comparisons_.end();) {
    CallComparison& comparison = at->second;
    if (comparison.due() > now && !has_heard_all(comparison)) {
      if (comparison.take_asks_again(now)) ask_unheard(at->first, comparison);
      ++at;
      continue;
    }
    const std::set<Rank>& members = comparison.members();
    broadcast(comparison.judge(static_cast<std::size_t>(std::count_if(
        members.begin(), members.end(), [&](Rank rank) { return is_unheard(rank, comparison); }))));
    at = comparisons_.erase(at);
  }
  for (const auto& [operation, timeout] : timeouts_) {
    if (timeout.due > now) continue;
    FailureDecision decision = judge(operation, timeout);
    decision.message = with_ranks_of_job(std::move(decision.message), decision.communicator);
    broadcast(std::move(decision));
  }
  std::erase_if(timeouts_, [now](const auto& each) { return each.second.due <= now; });
  if (timeouts_.empty()) {
    asked_.clear();
    answered_.clear();
  }
  for (auto at = links_.begin(); at != links_.end();) {
    const BrokenLink& link = at->second;
    // A death explains the broken link and has its own decision; a reporter that left needs none.
    // Nor does the other end of one that was judged: it may see that late.
    const bool has_left = presence(link.peer) == Presence::kLeft;
    const bool is_open = presence(link.reporter) == Presence::kHere &&
                         presence(link.peer) != Presence::kDead && !is_explained(link);
    if (is_open && !has_left && (link.due > now || is_awaited(link))) {
      ++at;
      continue;
    }
    // What the peer sent before it left was wrong all the same, and others may have had more of it.
    const bool is_told_to_all = is_open && (!has_left || is_nonsense(link.code));
    if (is_told_to_all) {
      broadcast(judge(link));
    } else if (has_left) {
      tell_that_peer_left(link.reporter, link.peer);
    }
    at = links_.erase(at);
  }
  return std::exchange(decided_, {});
}

TimePoint FailureDecider::next_due() const {
  if (!decided_.empty()) return TimePoint::min();
  TimePoint due = kNever;
  for (const auto& [operation, timeout] : timeouts_) due = std::min(due, timeout.due);
  for (const auto& [pair, link] : links_) {
    if (!is_awaited(link)) due = std::min(due, link.due);
  }
  for (const auto& [communicator, each] : comparisons_) {
    const TimePoint next = std::min(each.due(), each.asks_at());
    due = std::min(due, has_heard_all(each) ? TimePoint::min() : next);
  }
  return due;
}

void FailureDecider::broadcast(FailureDecision decision) {
  if (ledger_.admit(decision)) decided_.push_back({-1, std::move(decision)});
}

void FailureDecider::tell_that_peer_left(Rank reporter, Rank peer) {
  decided_.push_back({reporter,
                      {ErrorCode::kRankLeft, peer, kEveryCommunicator, 0,
                       fmt::format("{} left the job while rank {} still needed it",
                                   member_text(member(peer)), reporter)}});
}

}  // namespace unisono::rendezvous
