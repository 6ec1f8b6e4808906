#include "rendezvous/sessions/job_record.h"

#include <algorithm>

#include "base/keep_latest.h"
#include "rendezvous/failure/standby.h"

namespace unisono::rendezvous {

JobRecord::JobRecord(const std::vector<Member>& members, Rank self, std::string job_id)
    : members_(members),
      standbys_(choose_standbys(members)),
      self_(self),
      job_id_(std::move(job_id)) {}

// Where a part has ended only that part is told, and no arbiter of another one.
void JobRecord::on_decision(const FailureDecision& decision) {
  if (decision.code == ErrorCode::kPartitioned) return;
  keep_latest(decision, kDecisionsToldMax, &latest_);
  if (decision.communicator != kEveryCommunicator || decision.failed_rank < 0) return;
  (decision.code == ErrorCode::kRankLeft ? left_ : dead_).insert(decision.failed_rank);
}

Rank JobRecord::next_standby(bool self_last) const {
  int others = 0;
  for (Rank rank = 0; rank < size(); ++rank) others += rank != self_ && !is_gone(rank);
  if (others == 0) return -1;
  bool may_be_self = false;
  for (const Rank rank : standbys_) {
    if (is_gone(rank)) continue;
    if (rank != self_ || !self_last) return rank;
    may_be_self = true;
  }
  return may_be_self ? self_ : -1;
}

std::deque<Rank> JobRecord::standbys_to_tell(Rank holder) const {
  std::deque<Rank> ranks;
  for (const Rank rank : standbys_) {
    if (rank != self_ && rank != holder && !is_gone_for_good(rank)) ranks.push_back(rank);
  }
  std::stable_partition(ranks.begin(), ranks.end(),
                        [&](Rank rank) { return unreachable_.count(rank) == 0; });
  return ranks;
}

bool JobRecord::is_standby() const {
  return std::binary_search(standbys_.begin(), standbys_.end(), self_);
}

bool JobRecord::is_on_own_host(Rank rank) const { return same_host(member(rank), member(self_)); }

// That nobody listens proves nothing of a process that cannot be seen: it may have had no thread or
// descriptor for its arbiter.
bool JobRecord::has_died_here(Rank rank) const {
  if (dead_.count(rank) > 0) return is_on_own_host(rank);
  return absent_.count(rank) > 0 && see_each_other(member(rank), member(self_));
}

// Whom the others have named they may have gone on without, and left since.
bool JobRecord::is_last() const {
  if (dead_.count(self_) > 0) return false;
  for (Rank rank = 0; rank < size(); ++rank) {
    if (rank != self_ && !has_ended(rank) && !has_died_here(rank)) return false;
  }
  return true;
}

Parts JobRecord::parts() const {
  Parts parts{{self_}, {}};
  for (Rank rank = 0; rank < size(); ++rank) {
    if (!has_ended(rank) && !is_on_own_host(rank)) parts.elsewhere.insert(rank);
  }
  return parts;
}

RejoinMessage JobRecord::rejoin_message() const {
  std::set<Rank> left = left_, ended = ended_;
  left.insert(left_elsewhere_.begin(), left_elsewhere_.end());
  ended.insert(left_.begin(), left_.end());
  return {job_id_,
          self_,
          {dead_.begin(), dead_.end()},
          {left.begin(), left.end()},
          {latest_.begin(), latest_.end()},
          {ended.begin(), ended.end()}};
}

}  // namespace unisono::rendezvous
