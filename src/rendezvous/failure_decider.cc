#include "rendezvous/failure_decider.h"

#include <fmt/format.h>

#include <algorithm>

#include "rendezvous/rank_text.h"

namespace unisono::rendezvous {
namespace {

// A program makes tens of communicators. Beyond this a rank is making numbers up, and its
// failures are no longer remembered one by one.
constexpr std::size_t kCommunicatorsMax = 1 << 20;
constexpr std::size_t kTimeoutsMax = 1024;
constexpr std::size_t kComparisonsMax = 1024;
// Reports of one rank that are remembered.
constexpr std::size_t kReportsMax = 64;
// Whose whereabouts a timeout's message tells before it would be too long to read.
constexpr std::size_t kRanksDescribedMax = 4;

std::vector<Rank> to_vector(const std::set<Rank>& ranks) { return {ranks.begin(), ranks.end()}; }

}  // namespace

bool DecisionLedger::admit(const FailureDecision& decision) {
  if (decision.communicator == kEveryCommunicator)
    return ranks_.insert(decision.failed_rank).second;
  if (communicators_.size() >= kCommunicatorsMax) return false;
  return communicators_.insert(decision.communicator).second;
}

FailureDecider::FailureDecider(std::vector<Member> members)
    : members_(std::move(members)), presence_(members_.size(), Presence::kHere) {}

void FailureDecider::on_goodbye(Rank rank) {
  if (presence(rank) != Presence::kHere) return;
  presence_[static_cast<std::size_t>(rank)] = Presence::kLeft;
  waits_.erase(rank);
  for (const auto& [reporter, reports] : waits_) {
    if (waits_for(reporter, rank)) tell_that_peer_left(reporter, rank);
  }
}

void FailureDecider::on_closed(Rank rank, const std::string& how) {
  if (presence(rank) != Presence::kHere) return;
  presence_[static_cast<std::size_t>(rank)] = Presence::kDead;
  waits_.erase(rank);
  broadcast({ErrorCode::kRankFailed, rank, kEveryCommunicator, 0,
             fmt::format("{} died: its control connection {}", member_text(member(rank)), how)});
}

void FailureDecider::on_violation(Rank rank, const std::string& what) {
  if (presence(rank) == Presence::kDead) return;
  presence_[static_cast<std::size_t>(rank)] = Presence::kDead;
  waits_.erase(rank);
  broadcast({ErrorCode::kProtocol, rank, kEveryCommunicator, 0,
             fmt::format("{} sent the arbiter {}", member_text(member(rank)), what)});
}

void FailureDecider::note(Rank rank, WaitMessage message) {
  std::deque<WaitMessage>& reports = waits_[rank];
  std::erase_if(reports, [&](const WaitMessage& known) {
    return known.communicator == message.communicator && known.sequence == message.sequence;
  });
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
  const auto found = waits_.find(rank);
  if (found == waits_.end()) return false;
  return std::any_of(found->second.begin(), found->second.end(), [&](const auto& report) {
    return report.communicator == operation.first && report.sequence >= operation.second &&
           report.sequence != kPointToPointSequence;
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

void FailureDecider::on_timed_out(Rank rank, WaitMessage message, TimePoint now) {
  if (presence(rank) != Presence::kHere) return;
  const Operation operation{message.communicator, message.sequence};
  if (timeouts_.size() < kTimeoutsMax || timeouts_.count(operation) > 0) {
    const auto entry = timeouts_.try_emplace(operation, Timeout{now + kGatherTime, {}}).first;
    entry->second.members.insert(message.members.begin(), message.members.end());
  }
  note(rank, std::move(message));
}

void FailureDecider::on_failure(FailureDecision decision) {
  // Which rank is alive is known here better than there.
  if (decision.failed_rank >= 0 && decision.code == ErrorCode::kRankFailed &&
      presence(decision.failed_rank) == Presence::kDead) {
    return;
  }
  broadcast(std::move(decision));
}

void FailureDecider::on_broken_link(Rank reporter, const BrokenLinkMessage& message,
                                    TimePoint now) {
  const Rank peer = message.peer;
  if (peer == reporter) return on_violation(reporter, "a report about a link to itself");
  if (presence(peer) == Presence::kDead) return;
  if (presence(peer) == Presence::kLeft) return tell_that_peer_left(reporter, peer);
  broken_with_[reporter].insert(peer);
  broken_with_[peer].insert(reporter);
  const BrokenLink reported{now + kLinkGraceTime, reporter, peer, message.reason, message.code};
  const auto [known, is_new] = links_.try_emplace(std::minmax(reporter, peer), reported);
  // Who was sent nonsense hangs up, and the sender may be the first to complain of that.
  const auto is_nonsense = [](const BrokenLink& link) { return link.code == ErrorCode::kProtocol; };
  if (!is_new && is_nonsense(reported) && !is_nonsense(known->second)) {
    const TimePoint due = known->second.due;
    known->second = reported;
    known->second.due = due;
  }
}

std::size_t FailureDecider::broken_links_of(Rank rank) const {
  const auto found = broken_with_.find(rank);
  return found == broken_with_.end() ? 0 : found->second.size();
}

// Everyone is asked at once; who sees the difference as well has answered by saying so.
void FailureDecider::on_differing(Rank reporter, CallsMessage message, TimePoint now) {
  if (presence(reporter) != Presence::kHere) return;
  const std::uint32_t communicator = message.communicator;
  const auto known = comparisons_.find(communicator);
  if (known != comparisons_.end()) return known->second.add(reporter, std::move(message));
  if (comparisons_.size() >= kComparisonsMax || ledger_.has_judged(communicator)) return;
  for (const Rank rank : message.members) {
    if (rank != reporter && presence(rank) == Presence::kHere) {
      decided_.push_back({rank, {ErrorCode::kMismatch, -1, communicator, 0, ""}, true});
    }
  }
  comparisons_.emplace(communicator,
                       CallComparison(reporter, std::move(message), now + kCallsTime));
}

void FailureDecider::on_calls(Rank rank, CallsMessage message) {
  const auto known = comparisons_.find(message.communicator);
  if (known != comparisons_.end()) known->second.add(rank, std::move(message));
}

std::size_t FailureDecider::silent_in(const CallComparison& comparison) const {
  const std::set<Rank>& members = comparison.members();
  return static_cast<std::size_t>(std::count_if(members.begin(), members.end(), [&](Rank rank) {
    return presence(rank) == Presence::kHere && !comparison.has_heard(rank);
  }));
}

std::vector<FailureDecider::Outgoing> FailureDecider::take(TimePoint now) {
  for (auto at = comparisons_.begin(); at != comparisons_.end();) {
    const std::size_t silent = silent_in(at->second);
    if (at->second.due() > now && silent > 0) {
      ++at;
      continue;
    }
    broadcast(at->second.judge(silent));
    at = comparisons_.erase(at);
  }
  for (auto at = timeouts_.begin(); at != timeouts_.end();) {
    if (at->second.due > now) {
      ++at;
      continue;
    }
    broadcast(judge(at->first, at->second));
    at = timeouts_.erase(at);
  }
  for (auto at = links_.begin(); at != links_.end();) {
    const BrokenLink& link = at->second;
    // A death explains the broken link and has its own decision; a reporter that left needs none.
    const bool both_here =
        presence(link.peer) == Presence::kHere && presence(link.reporter) == Presence::kHere;
    if (both_here && link.due > now) {
      ++at;
      continue;
    }
    if (both_here) broadcast(judge(link));
    if (presence(link.peer) == Presence::kLeft) tell_that_peer_left(link.reporter, link.peer);
    at = links_.erase(at);
  }
  return std::exchange(decided_, {});
}

TimePoint FailureDecider::next_due() const {
  if (!decided_.empty()) return TimePoint::min();
  TimePoint due = kNever;
  for (const auto& [operation, timeout] : timeouts_) due = std::min(due, timeout.due);
  for (const auto& [pair, link] : links_) due = std::min(due, link.due);
  for (const auto& [communicator, each] : comparisons_) {
    due = std::min(due, silent_in(each) == 0 ? TimePoint::min() : each.due());
  }
  return due;
}

void FailureDecider::broadcast(FailureDecision decision) {
  if (ledger_.admit(decision)) decided_.push_back({-1, std::move(decision), false});
}

void FailureDecider::tell_that_peer_left(Rank reporter, Rank peer) {
  decided_.push_back({reporter,
                      {ErrorCode::kRankLeft, peer, kEveryCommunicator, 0,
                       fmt::format("{} left the job while rank {} still needed it",
                                   member_text(member(peer)), reporter)}});
}

FailureDecision FailureDecider::judge(const Operation& operation, const Timeout& timeout) const {
  std::set<Rank> arrived, missing;
  for (const auto& [rank, reports] : waits_) {
    if (has_entered(rank, operation)) arrived.insert(rank);
    for (const WaitMessage& wait : reports) {
      if (Operation{wait.communicator, wait.sequence} != operation) continue;
      missing.insert(wait.waiting_for.begin(), wait.waiting_for.end());
    }
  }
  std::set<Rank> awaited = missing;
  for (const Rank rank : arrived) missing.erase(rank);

  FailureDecision decision{ErrorCode::kTimeout, missing.size() == 1 ? *missing.begin() : -1,
                           operation.first, operation.second, ""};
  const std::set<Rank>& members = timeout.members;
  const std::string of = members.empty() ? "" : fmt::format(" of {} members", members.size());
  if (missing.empty()) {
    decision.message = fmt::format(
        "operation {} of communicator {} timed out although all that were waited for "
        "had arrived: {}{} arrived, {} waited for",
        operation.second, operation.first, ranks_text(to_vector(arrived)), of,
        ranks_text(to_vector(awaited)));
    return decision;
  }
  decision.message = fmt::format(
      "operation {} of communicator {} timed out: {} had not arrived, {} had{}", operation.second,
      operation.first, ranks_text(to_vector(missing)), ranks_text(to_vector(arrived)), of);
  std::size_t described = 0;
  for (const Rank rank : missing) {
    if (described++ == kRanksDescribedMax) break;
    decision.message += whereabouts(rank, operation);
  }
  return decision;
}

// Which end is at fault nobody sees. A rank whose links to others broke as well is suspected before
// one that lost this link alone; else the word of who complained first stands.
FailureDecision FailureDecider::judge(const BrokenLink& link) const {
  const std::size_t of_reporter = broken_links_of(link.reporter);
  const bool is_reporter = of_reporter > broken_links_of(link.peer);
  const std::string reporter = member_text(member(link.reporter));
  const std::string peer = member_text(member(link.peer));
  if (is_reporter) {
    return {ErrorCode::kRankFailed, link.reporter, kEveryCommunicator, 0,
            fmt::format("{} lost its links to {} ranks that are alive, to {} with: {}", reporter,
                        of_reporter, peer, link.reason)};
  }
  if (link.code == ErrorCode::kProtocol) {
    return {link.code, link.peer, kEveryCommunicator, 0,
            fmt::format("{} sent {} what no correct rank sends: {}", peer, reporter, link.reason)};
  }
  return {ErrorCode::kRankFailed, link.peer, kEveryCommunicator, 0,
          fmt::format("the link between {} and {} broke although both are alive: {}", reporter,
                      peer, link.reason)};
}

std::string FailureDecider::whereabouts(Rank rank, const Operation& operation) const {
  std::string text = "; " + member_text(member(rank));
  if (presence(rank) == Presence::kDead) return text + " died";
  if (presence(rank) == Presence::kLeft) return text + " left the job";
  const auto found = waits_.find(rank);
  if (found == waits_.end()) return text + " is alive and waits for nobody";
  const WaitMessage& wait = found->second.back();
  text += wait.sequence == kPointToPointSequence
              ? std::string(" waits in a send or receive")
              : fmt::format(" waits in operation {}", wait.sequence);
  if (wait.sequence != kPointToPointSequence && wait.communicator != operation.first) {
    text += fmt::format(" of communicator {}", wait.communicator);
  }
  // Perhaps the one at fault: not for certain, since nobody says when a wait is over.
  return wait.waiting_for.empty() ? text : text + " for " + ranks_text(wait.waiting_for);
}

}  // namespace unisono::rendezvous
