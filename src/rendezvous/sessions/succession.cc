#include "rendezvous/sessions/succession.h"

#include <utility>

#include "base/grace_periods.h"

namespace unisono::rendezvous {

void Succession::on_come(Rank rank, TimePoint now) {
  const bool had_taken_over = has_taken_over();
  if (came_.empty()) refuses_at_ = now + grace::kOwnRank;
  came_.insert(rank);
  if (!had_taken_over && has_taken_over()) missing_at_ = now + come_within_;
}

void Succession::on_refused() {
  came_.clear();
  refuses_at_ = kNever;
}

std::vector<Rank> Succession::take_missing(TimePoint now) {
  std::vector<Rank> missing;
  if (!has_taken_over() || now < missing_at_) return missing;
  missing_at_ = kNever;
  for (Rank rank = 0; rank < size_; ++rank) {
    if (came_.count(rank) == 0 && gone_.count(rank) == 0) missing.push_back(rank);
  }
  return missing;
}

}  // namespace unisono::rendezvous
