// Who is at fault by all that was reported, once it is time to say so; see failure_decider.h.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/failure/failure_decider.h"
#include "rendezvous/messages/rank_text.h"

namespace unisono::rendezvous {
namespace {

// Whose whereabouts a timeout's message tells before it would be too long to read.
constexpr std::size_t kRanksDescribedMax = 4;

std::vector<Rank> to_vector(const std::set<Rank>& ranks) { return {ranks.begin(), ranks.end()}; }

}  // namespace

FailureDecision FailureDecider::judge(const Operation& operation, const Timeout& timeout) const {
  FailureDecision decision{ErrorCode::kTimeout, -1, operation.first, operation.second, ""};
  if (operation.second == kPointToPointSequence) {
    decision.message =
        fmt::format("{} did not finish on rank {} within its deadline; waiting for {}",
                    timeout.call, timeout.reporter, ranks_text(to_vector(timeout.awaited)));
    add_fault(timeout.awaited, operation, &decision);
    return decision;
  }
  std::set<Rank> arrived = timeout.arrived;
  for (Rank rank = 0; rank < std::ssize(members_); ++rank) {
    if (has_entered(rank, operation)) arrived.insert(rank);
  }
  const std::set<Rank> awaited = awaited_in(operation);
  std::set<Rank> missing = awaited;
  for (const Rank rank : arrived) missing.erase(rank);

  // What people know of the call comes first, its numbers last.
  const std::string what = timeout.call.empty() ? "a call timed out" : timeout.call + ", timed out";
  const std::size_t size = timeout.members.size();
  const std::string numbers =
      fmt::format(" (operation {} of communicator {}{})", operation.second, operation.first,
                  size == 0 ? "" : fmt::format(", which has {} ranks", size));
  if (missing.empty()) {
    decision.message =
        fmt::format("{} although all that were waited for had arrived: {} arrived, {} waited for{}",
                    what, ranks_text(to_vector(arrived)), ranks_text(to_vector(awaited)), numbers);
    return decision;
  }
  decision.message =
      fmt::format("{}: {} had not arrived, {} had{}", what, ranks_text(to_vector(missing)),
                  ranks_text(to_vector(arrived)), numbers);
  add_fault(missing, operation, &decision);
  return decision;
}

void FailureDecider::add_fault(const std::set<Rank>& missing, const Operation& operation,
                               FailureDecision* decision) const {
  std::set<Rank> ends;
  const std::vector<Rank> chain = chain_from(missing, &ends);
  // In a circle each holds up the next.
  const std::set<Rank>& at_fault = ends.empty() ? missing : ends;
  if (at_fault.size() == 1) decision->failed_rank = *at_fault.begin();
  for (std::size_t i = 0; i < std::min(chain.size(), kRanksDescribedMax); ++i) {
    decision->message += whereabouts(chain[i], operation);
  }
}

// Which end is at fault nobody sees. One that does not hear the arbiter either is suspected before
// one that does, and a rank whose links to others broke as well before one that lost this link
// alone; else the word of who complained first stands. Nonsense has come through the link.
FailureDecision FailureDecider::judge(const BrokenLink& link) const {
  const std::size_t of_reporter = broken_links_of(link.reporter);
  const bool is_deaf = deaf_.contains(link.reporter), is_peer_deaf = deaf_.contains(link.peer);
  const bool tells_deafness = is_deaf != is_peer_deaf && !is_nonsense(link.code);
  const bool is_reporter = tells_deafness ? is_deaf : of_reporter > broken_links_of(link.peer);
  const std::string reporter = member_text(member(link.reporter));
  const std::string peer = member_text(member(link.peer));
  const bool is_corrupted = link.code == ErrorCode::kCorrupted;
  if (tells_deafness) {
    return {ErrorCode::kRankFailed, is_reporter ? link.reporter : link.peer, kEveryCommunicator, 0,
            fmt::format("{} does not hear the arbiter, and the link between it and {} broke: {}",
                        is_reporter ? reporter : peer, is_reporter ? peer : reporter, link.reason)};
  }
  if (is_reporter) {
    return {is_corrupted ? link.code : ErrorCode::kRankFailed, link.reporter, kEveryCommunicator, 0,
            fmt::format("{} lost its links to {} ranks that are alive, to {} with: {}", reporter,
                        of_reporter, peer, link.reason)};
  }
  if (link.code == ErrorCode::kProtocol) {
    return {link.code, link.peer, kEveryCommunicator, 0,
            fmt::format("{} sent {} what no correct rank sends: {}", peer, reporter, link.reason)};
  }
  if (is_corrupted) {
    return {link.code, link.peer, kEveryCommunicator, 0,
            fmt::format("the link from {} to {} changed what it carried: {}", peer, reporter,
                        link.reason)};
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
  if (found == waits_.end()) {
    return text + (answered_.count(rank) > 0 ? " is alive and waits for nobody"
                                             : " is alive and does not answer: it computes, or is "
                                               "stopped");
  }
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
