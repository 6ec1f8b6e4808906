#include "rendezvous/failure/silence.h"

#include <algorithm>

namespace unisono::rendezvous {

void Silence::on_heard(Rank rank, TimePoint now) {
  if (is_off()) return;
  const auto [entry, is_new] = heard_.try_emplace(rank, order_.end());
  if (is_new) {
    entry->second = order_.insert(order_.end(), {rank, now});
  } else {
    entry->second->at = now;
    order_.splice(order_.end(), order_, entry->second);
  }
}

void Silence::forget(Rank rank) {
  const auto entry = heard_.find(rank);
  if (entry == heard_.end()) return;
  order_.erase(entry->second);
  heard_.erase(entry);
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
  for (Heard& heard : order_) heard.at = now;
}

bool Silence::was_stopped(TimePoint now) const { return stopped_within(limit_, now); }

bool Silence::hears(Rank rank, TimePoint now) const {
  const auto heard = heard_.find(rank);
  return heard != heard_.end() && now - heard->second->at <= limit_ / 2 && !was_stopped(now);
}

bool Silence::misses(Rank rank, TimePoint now) const {
  if (is_off() || was_stopped(now)) return false;
  const auto heard = heard_.find(rank);
  return heard == heard_.end() || now - heard->second->at > limit_ * 2 / 3;
}

bool Silence::take_beat(TimePoint now) {
  if (is_off() || now < next_beat_) return false;
  next_beat_ = now + beat();
  return true;
}

std::vector<Rank> Silence::overdue(TimePoint now) const {
  std::vector<Rank> ranks;
  for (const Heard& heard : order_) {
    if (now - heard.at <= limit_ / 2) break;
    ranks.push_back(heard.rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::vector<Rank> Silence::take_silent(TimePoint now) {
  std::vector<Rank> silent;
  while (!order_.empty() && now - order_.front().at >= limit_) {
    silent.push_back(order_.front().rank);
    forget(silent.back());
  }
  std::sort(silent.begin(), silent.end());
  return silent;
}

TimePoint Silence::next_due() const {
  if (is_off()) return kNever;
  return order_.empty() ? next_beat_ : std::min(next_beat_, order_.front().at + limit_);
}

}  // namespace unisono::rendezvous
