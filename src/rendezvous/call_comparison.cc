#include "rendezvous/call_comparison.h"

#include <fmt/format.h>

#include <algorithm>

#include "rendezvous/rank_text.h"

namespace unisono::rendezvous {
namespace {

// What words cannot tell apart differs in what a record has as a digest only.
std::string difference(const CallRecord& one, const CallRecord& other) {
  if (describe(one) != describe(other)) return "";
  return one.history != other.history ? " after other calls" : " with other counts or operator";
}

}  // namespace

CallComparison::CallComparison(Rank reporter, CallsMessage first, TimePoint due)
    : communicator_(first.communicator),
      members_(first.members.begin(), first.members.end()),
      suspicion_(first.suspicion),
      due_(due) {
  add(reporter, std::move(first));
}

void CallComparison::add(Rank rank, CallsMessage message) {
  if (members_.count(rank) > 0) accounts_.try_emplace(rank, std::move(message));
}

std::vector<CallComparison::Group> CallComparison::groups_of(std::uint64_t sequence) const {
  std::vector<Group> groups;
  for (const auto& [world_rank, account] : accounts_) {
    const auto call =
        std::find_if(account.calls.begin(), account.calls.end(),
                     [&](const NumberedCall& each) { return each.sequence == sequence; });
    if (call == account.calls.end()) continue;
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const Group& group) {
      return group.record == call->record;
    });
    Group& group = same != groups.end() ? *same : groups.emplace_back(Group{call->record, {}});
    group.callers.insert(account.member);
  }
  std::sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) {
    return a.callers.size() != b.callers.size() ? a.callers.size() > b.callers.size()
                                                : *a.callers.begin() < *b.callers.begin();
  });
  return groups;
}

Verdict CallComparison::judge(std::size_t silent) const {
  std::set<std::uint64_t> sequences;
  for (const auto& [rank, account] : accounts_) {
    for (const NumberedCall& call : account.calls) sequences.insert(call.sequence);
  }
  for (const std::uint64_t sequence : sequences) {
    const std::vector<Group> groups = groups_of(sequence);
    if (groups.size() > 1) return verdict_of(groups, sequence, silent);
  }
  Verdict suspected = suspicion_;
  if (accounts_.size() == 1 && members_.size() > 2) {
    suspected.culprit = unless_in_doubt(suspected.culprit, 1, silent);
  }
  return suspected;
}

// Ranks that compute are not heard in time, and might agree with whoever looks odd without them.
Rank CallComparison::unless_in_doubt(Rank odd, std::size_t agreeing, std::size_t silent) const {
  return silent == 0 || 2 * agreeing > accounts_.size() + silent ? odd : -1;
}

Verdict CallComparison::verdict_of(const std::vector<Group>& groups, std::uint64_t sequence,
                                   std::size_t silent) const {
  const Group& most = groups[0];
  const auto odd = std::min_element(
      groups.begin() + 1, groups.end(),
      [](const Group& a, const Group& b) { return *a.callers.begin() < *b.callers.begin(); });
  const auto account = std::find_if(accounts_.begin(), accounts_.end(), [&](const auto& each) {
    return each.second.member == *odd->callers.begin();
  });
  return {ErrorCode::kMismatch, unless_in_doubt(account->first, most.callers.size(), silent),
          communicator_, sequence,
          fmt::format("{} called {}{} where {} called {} (operation {}); all ranks must make the "
                      "same calls in the same order",
                      ranks_text({odd->callers.begin(), odd->callers.end()}), describe(odd->record),
                      difference(odd->record, most.record),
                      ranks_text({most.callers.begin(), most.callers.end()}), describe(most.record),
                      sequence)};
}

}  // namespace unisono::rendezvous
