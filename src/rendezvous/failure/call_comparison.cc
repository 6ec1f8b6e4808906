#include "rendezvous/failure/call_comparison.h"

#include <fmt/format.h>

#include <algorithm>

#include "rendezvous/messages/rank_text.h"

namespace unisono::rendezvous {
namespace {

// A member that is behind computes, or is on its way.
constexpr Duration kFirstPause = std::chrono::milliseconds(10);

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
  Account& account = accounts_.try_emplace(rank, Account{message.member, {}}).first->second;
  if (message.calls.empty() || has_made(account, message.calls.back().sequence)) return;
  account.calls = std::move(message.calls);
  for (const NumberedCall& call : account.calls) {
    const CallRecord& first = calls_.try_emplace(call.sequence, call.record).first->second;
    if (first == call.record) continue;
    difference_ = std::min(difference_.value_or(call.sequence), call.sequence);
  }
}

std::optional<std::uint64_t> CallComparison::disputed() const {
  if (difference_) return difference_;
  const auto reporter = accounts_.find(reporter_);  // none of a rank that is no member
  if (reporter == accounts_.end() || reporter->second.calls.empty()) return std::nullopt;
  return reporter->second.calls.back().sequence;
}

bool CallComparison::has_heard(Rank rank) const {
  const auto account = accounts_.find(rank);
  if (account == accounts_.end()) return false;
  const auto sequence = disputed();
  return !sequence || has_made(account->second, *sequence);
}

bool CallComparison::take_asks_again(TimePoint now) {
  if (now < asks_at_) return false;
  pause_ *= 2;
  asks_at_ = now + pause_;
  return true;
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

FailureDecision CallComparison::judge(std::size_t unheard) const {
  if (difference_) return decision_of(*difference_, unheard);
  FailureDecision suspected = suspicion_;
  const auto heard = std::count_if(accounts_.begin(), accounts_.end(),
                                   [&](const auto& each) { return has_heard(each.first); });
  if (heard == 1 && members_.size() > 2) suspected.failed_rank = -1;  // its word alone
  return suspected;
}

FailureDecision CallComparison::decision_of(std::uint64_t sequence, std::size_t unheard) const {
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
  const bool is_sure = 2 * most.callers.size() > known + unheard ||
                       (unheard == 0 && (!is_draw || known == members_.size()));
  return {ErrorCode::kMismatch, is_sure ? account->first : -1, communicator_, sequence,
          fmt::format("{} called {}{} where {} called {} (operation {}); all ranks must make the "
                      "same calls in the same order",
                      ranks_text({odd->callers.begin(), odd->callers.end()}), describe(odd->record),
                      difference(odd->record, most.record),
                      ranks_text({most.callers.begin(), most.callers.end()}), describe(most.record),
                      sequence)};
}

}  // namespace unisono::rendezvous
