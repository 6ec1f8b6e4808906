#include "rendezvous/call_comparison.h"

#include <fmt/format.h>

#include <algorithm>

#include "rendezvous/rank_text.h"

namespace unisono::rendezvous {
namespace {

// A member that is behind computes, or is on its way.
constexpr Duration kFirstPause = std::chrono::milliseconds(5);

// Of the latest call in an account.
std::uint64_t next_of(const CallsMessage& account) {
  return account.calls.empty() ? 0 : account.calls.back().sequence + 1;
}

// What words cannot tell apart differs in what a record has as a digest only.
std::string difference(const CallRecord& one, const CallRecord& other) {
  if (describe(one) != describe(other)) return "";
  return one.history != other.history ? " after other calls" : " with other counts or operator";
}

}  // namespace

CallComparison::CallComparison(Rank reporter, CallsMessage first, TimePoint now, TimePoint due)
    : communicator_(first.communicator),
      reporter_(reporter),
      members_(first.members.begin(), first.members.end()),
      suspicion_(first.suspicion),
      due_(due),
      asks_at_(now + kFirstPause),
      pause_(kFirstPause) {
  add(reporter, std::move(first));
}

void CallComparison::add(Rank rank, CallsMessage message) {
  if (members_.count(rank) == 0) return;
  const auto known = accounts_.find(rank);
  if (known == accounts_.end()) {
    accounts_.emplace(rank, std::move(message));
  } else if (next_of(message) > next_of(known->second)) {
    known->second = std::move(message);
  }
}

std::optional<std::uint64_t> CallComparison::first_difference() const {
  std::set<std::uint64_t> sequences;
  for (const auto& [rank, account] : accounts_) {
    for (const NumberedCall& call : account.calls) sequences.insert(call.sequence);
  }
  for (const std::uint64_t sequence : sequences) {
    if (groups_of(sequence).size() > 1) return sequence;
  }
  return std::nullopt;
}

// As long as nothing differs, a difference may be in the latest call of who has seen one.
std::vector<Rank> CallComparison::behind() const {
  const auto reporters = accounts_.find(reporter_);  // none of a rank that is no member
  std::uint64_t needed = reporters == accounts_.end() ? 0 : next_of(reporters->second);
  if (const auto sequence = first_difference()) needed = *sequence + 1;
  std::vector<Rank> ranks;
  for (const auto& [rank, account] : accounts_) {
    if (next_of(account) < needed) ranks.push_back(rank);
  }
  return ranks;
}

std::vector<Rank> CallComparison::take_asked_again(TimePoint now) {
  if (now < asks_at_) return {};
  pause_ *= 2;
  asks_at_ = now + pause_;
  return behind();
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
  if (const auto sequence = first_difference()) return decision_of(*sequence, silent);
  FailureDecision suspected = suspicion_;
  const bool is_one_word_alone = accounts_.size() - behind().size() == 1;
  if (is_one_word_alone && members_.size() > 2) suspected.failed_rank = -1;
  return suspected;
}

FailureDecision CallComparison::decision_of(std::uint64_t sequence, std::size_t silent) const {
  const std::vector<Group> groups = groups_of(sequence);
  const Group& most = groups[0];
  const auto odd = std::min_element(
      groups.begin() + 1, groups.end(),
      [](const Group& a, const Group& b) { return *a.callers.begin() < *b.callers.begin(); });
  const auto account = std::find_if(accounts_.begin(), accounts_.end(), [&](const auto& each) {
    return each.second.member == *odd->callers.begin();
  });
  // Ranks that compute are not heard in time, or have not made the call. They might agree with
  // whoever looks odd without them; those that have left decide a draw at most.
  std::size_t known = 0;
  for (const Group& group : groups) known += group.callers.size();
  const bool is_draw = most.callers.size() == groups[1].callers.size();
  const bool may_turn = silent > 0 || !behind().empty();
  const bool is_sure = 2 * most.callers.size() > accounts_.size() + silent ||
                       (!may_turn && (!is_draw || known == members_.size()));
  return {ErrorCode::kMismatch, is_sure ? account->first : -1, communicator_, sequence,
          fmt::format("{} called {}{} where {} called {} (operation {}); all ranks must make the "
                      "same calls in the same order",
                      ranks_text({odd->callers.begin(), odd->callers.end()}), describe(odd->record),
                      difference(odd->record, most.record),
                      ranks_text({most.callers.begin(), most.callers.end()}), describe(most.record),
                      sequence)};
}

}  // namespace unisono::rendezvous
