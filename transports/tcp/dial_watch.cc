#include "transports/tcp/dial_watch.h"

#include <algorithm>
#include <chrono>

namespace unisono::tcp {
namespace {

using std::chrono::milliseconds;

// After a longer pause, or half of the patience, nobody knows what happened in it.
constexpr milliseconds kLookEveryMax{500};
// Longer than any network takes, and short enough for three tries of some addresses within 3 s.
constexpr milliseconds kTurnMin{500};
constexpr int kTurnsOfPatience = 3;
// A rank that leaves listens no more, and waits for 2 s until all is sent before it says so
// (Drain).
constexpr milliseconds kRefusalMin{2500};

Duration turn_of(Duration patience, std::size_t addresses) {
  if (patience == Duration::zero()) return Duration::max();
  const auto tries = kTurnsOfPatience * static_cast<Duration::rep>(addresses);
  return std::max<Duration>(patience / tries, kTurnMin);
}

}  // namespace

DialWatch::DialWatch(Duration patience, std::size_t addresses)
    : patience_(patience), turn_(turn_of(patience, addresses)) {}

void DialWatch::look(TimePoint now) {
  const Duration pause = std::min<Duration>(kLookEveryMax, patience_ / 2);
  if (since_ != kNever && looked_ != kNever && now - looked_ > pause) since_ = now;
  looked_ = now;
}

void DialWatch::begin_round(TimePoint now) {
  if (since_ == kNever) since_ = now;
  round_ = now;
  is_refused_ = false;
}

Duration DialWatch::limit() const {
  return is_refused_ ? std::max<Duration>(patience_, kRefusalMin) : patience_;
}

// A network that is back before has let in who tried in the last third.
bool DialWatch::is_over(TimePoint now) const {
  if (patience_ == Duration::zero() || since_ == kNever) return false;
  return now - since_ >= limit() && round_ >= since_ + limit() * 2 / 3;
}

Duration DialWatch::pause(Duration usual, TimePoint now) const {
  if (patience_ == Duration::zero() || since_ == kNever) return usual;
  const Duration left = since_ + limit() - now;
  return left > Duration::zero() ? std::min(usual, left) : usual;
}

}  // namespace unisono::tcp
