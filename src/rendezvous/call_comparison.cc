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

FailureDecision CallComparison::judge(std::size_t silent) const {
  std::set<std::uint64_t> sequences;
  for (const auto& [rank, account] : accounts_) {
    for (const NumberedCall& call : account.calls) sequences.insert(call.sequence);
  }
  for (const std::uint64_t sequence : sequences) {
    const std::vector<Group> groups = groups_of(sequence);
    if (groups.size() > 1) return decision_of(groups, sequence, silent);
  }
  FailureDecision suspected = suspicion_;
  const bool is_one_word_alone = accounts_.size() == 1 && silent > 0;
  if (is_one_word_alone && members_.size() > 2) suspected.failed_rank = -1;
  return suspected;
}

FailureDecision CallComparison::decision_of(const std::vector<Group>& groups,
                                            std::uint64_t sequence, std::size_t silent) const {
  const Group& most = groups[0];
  const auto odd = std::min_element(
      groups.begin() + 1, groups.end(),
      [](const Group& a, const Group& b) { return *a.callers.begin() < *b.callers.begin(); });
  const auto account = std::find_if(accounts_.begin(), accounts_.end(), [&](const auto& each) {
    return each.second.member == *odd->callers.begin();
  });
  // Ranks that compute are not heard in time, and might agree with whoever looks odd without them.
  const bool is_sure = silent == 0 || 2 * most.callers.size() > accounts_.size() + silent;
  return {ErrorCode::kMismatch, is_sure ? account->first : -1, communicator_, sequence,
          fmt::format("{} called {}{} where {} called {} (operation {}); all ranks must make the "
                      "same calls in the same order",
                      ranks_text({odd->callers.begin(), odd->callers.end()}), describe(odd->record),
                      difference(odd->record, most.record),
                      ranks_text({most.callers.begin(), most.callers.end()}), describe(most.record),
                      sequence)};
}

}  // namespace unisono::rendezvous
