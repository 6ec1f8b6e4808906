#include "tools/run/restart_policy.h"

#include <algorithm>

namespace unisono::run {

template <typename Holds>
bool RestartPolicy::any_runs(Holds holds) const {
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
  return any_runs([&](int rank, const RankState& state) { return is_member(rank, state); });
}

bool RestartPolicy::one_is_to_rejoin() const {
  return !due_.empty() ||
         any_runs([&](int rank, const RankState& state) { return !is_member(rank, state); });
}

bool RestartPolicy::only_waiting_run() const {
  return !any_runs([&](int rank, const RankState& state) { return !waits_to_rejoin(rank, state); });
}

RestartPolicy::Decision RestartPolicy::on_failure(int rank, bool may_restart) {
  const RankState& failed = ranks_.at(rank);
  const bool is_counted = failed.rejoins || !one_is_to_rejoin();
  const bool is_used_up = is_counted && restarts_ == restarts_max_;
  if (!may_restart || is_ending_ || is_used_up) {
    return waits_to_rejoin(rank, failed) && member_runs() ? Decision::kGoesOn : Decision::kFailed;
  }
  if (is_counted) ++restarts_;
  if (who_ == Restart::kFailed && member_runs()) {
    due_.push_back(rank);
    return Decision::kRankRestarts;
  }
  due_.clear();
  all_are_due_ = true;
  return Decision::kAllRestart;
}

void RestartPolicy::on_end() {
  is_ending_ = true;
  all_are_due_ = false;
}

bool RestartPolicy::all_are_due() {
  if (!std::exchange(all_are_due_, false)) return false;
  ranks_.clear();
  return true;
}

}  // namespace unisono::run
