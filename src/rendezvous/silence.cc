#include "rendezvous/silence.h"

#include <algorithm>

namespace unisono::rendezvous {

void Silence::on_heard(Rank rank, TimePoint now) {
  if (is_off()) return;
  heard_[rank] = now;
  earliest_ = std::min(earliest_, now + limit_);
}

// Beats are a sixth of the limit apart, so that one that is lost may be sent again for long, and an
// observer wakes for each. After a pause of half the limit or less, two thirds of it at most have
// passed since somebody spoke who was stopped as long; a longer one shows here. What the whole
// machine slept through does not show in `now`, and others have missed this side meanwhile.
void Silence::on_wake(TimePoint now, Duration suspended) {
  const Duration pause = now - last_wake_ + suspensions_.since_last(suspended);
  const bool was_stopped = !is_off() && pause > limit_ / 2;
  last_wake_ = now;
  if (!was_stopped) return;
  stopped_until_ = now;
  for (auto& [rank, heard] : heard_) heard = now;
}

bool Silence::was_stopped(TimePoint now) const { return stopped_within(limit_, now); }

bool Silence::hears(Rank rank, TimePoint now) const {
  const auto heard = heard_.find(rank);
  return heard != heard_.end() && now - heard->second <= limit_ / 2 && !was_stopped(now);
}

bool Silence::misses(Rank rank, TimePoint now) const {
  if (is_off() || was_stopped(now)) return false;
  const auto heard = heard_.find(rank);
  return heard == heard_.end() || now - heard->second > limit_ * 2 / 3;
}

bool Silence::take_beat(TimePoint now) {
  if (is_off() || now < next_beat_) return false;
  next_beat_ = now + beat();
  return true;
}

std::vector<Rank> Silence::overdue(TimePoint now) const {
  std::vector<Rank> ranks;
  for (const auto& [rank, heard] : heard_) {
    if (now - heard > limit_ / 2) ranks.push_back(rank);
  }
  return ranks;
}

std::vector<Rank> Silence::take_silent(TimePoint now) {
  std::vector<Rank> silent;
  if (now < earliest_) return silent;
  earliest_ = kNever;
  std::erase_if(heard_, [&](const auto& entry) {
    const bool is_silent = now - entry.second >= limit_;
    if (is_silent) {
      silent.push_back(entry.first);
    } else {
      earliest_ = std::min(earliest_, entry.second + limit_);
    }
    return is_silent;
  });
  return silent;
}

TimePoint Silence::next_due() const { return is_off() ? kNever : std::min(next_beat_, earliest_); }

}  // namespace unisono::rendezvous
