#include "tools/run/restart_policy.h"

#include <algorithm>

namespace unisono::run {

template <typename Holds>
bool RestartPolicy::any_runs_that(Holds holds) const {
  return std::any_of(ranks_.begin(), ranks_.end(), [&](const auto& each) {
    return each.second.runs && holds(each.first, each.second);
  });
}

// A rank that those started again may find the others by: not one of themselves, unless it has
// rejoined.
bool RestartPolicy::is_member(int rank, const RankState& state) const {
  return !state.rejoins || facts_.has_rejoined(rank, state.restarts);
}

bool RestartPolicy::waits_to_rejoin(int rank, const RankState& state) const {
  return !is_member(rank, state) && facts_.waits(rank, state.restarts);
}

bool RestartPolicy::member_runs() const {
  return any_runs_that([&](int rank, const RankState& state) { return is_member(rank, state); });
}

bool RestartPolicy::one_is_to_rejoin() const {
  return !due_.empty() ||
         any_runs_that([&](int rank, const RankState& state) { return !is_member(rank, state); });
}

bool RestartPolicy::have_met() const {
  return had_met_ || std::any_of(ranks_.begin(), ranks_.end(), [&](const auto& each) {
           return !each.second.rejoins && facts_.have_met(each.second.restarts);
         });
}

bool RestartPolicy::only_waiting_run() const {
  return !any_runs_that(
      [&](int rank, const RankState& state) { return !waits_to_rejoin(rank, state); });
}

bool RestartPolicy::runs(int rank) const {
  const auto found = ranks_.find(rank);
  return found != ranks_.end() && found->second.runs;
}

bool RestartPolicy::any_runs() const {
  return any_runs_that([](int, const RankState&) { return true; });
}

RestartPolicy::Decision RestartPolicy::on_failure(std::span<const int> ranks, bool may_restart) {
  const bool was_restarted =
      std::any_of(ranks.begin(), ranks.end(), [&](int rank) { return ranks_.at(rank).rejoins; });
  const bool is_counted = was_restarted || !one_is_to_rejoin();
  const bool is_used_up = is_counted && restarts_ == restarts_max_;
  had_met_ = have_met();
  if (!may_restart || is_ending_ || is_used_up) {
    const bool had_not_rejoined = std::all_of(ranks.begin(), ranks.end(), [&](int rank) {
      return waits_to_rejoin(rank, ranks_.at(rank));
    });
    return had_not_rejoined && member_runs() ? Decision::kGoesOn : Decision::kFailed;
  }
  if (is_counted) ++restarts_;
  if (who_ == Restart::kFailed && had_met_ && member_runs()) {
    due_.insert(due_.end(), ranks.begin(), ranks.end());
    return Decision::kRankRestarts;
  }
  due_.clear();
  return Decision::kAllRestart;
}

std::vector<int> RestartPolicy::due_ranks(const std::function<bool(int rank)>& can_start) {
  const auto later = std::stable_partition(due_.begin(), due_.end(), can_start);
  std::vector<int> now(due_.begin(), later);
  due_.erase(due_.begin(), later);
  return now;
}

void RestartPolicy::on_end() {
  is_ending_ = true;
  due_.clear();
}

void RestartPolicy::forget_all() {
  ranks_.clear();
  had_met_ = false;
}

// One that rejoins others takes the place of one that had met them.
void RestartPolicy::on_start(int rank, bool rejoins, int restarts) {
  had_met_ = had_met_ || rejoins;
  ranks_[rank] = {true, rejoins, restarts};
}

}  // namespace unisono::run
