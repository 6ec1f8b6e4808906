// Who has not been heard for too long, at one side of control connections over which both sides say
// something at least once a beat. A side that was itself not run for a while has missed what was
// said, as after a stop of the whole job: it starts anew and suspects nobody. No sockets, no clock
// of its own; the owner calls on_wake() whenever it wakes, by next_due() at the latest.
#pragma once

#include <map>
#include <vector>

#include "base/clock.h"
#include "base/suspended.h"
#include "unisono/types.h"

namespace unisono::rendezvous {

class Silence {
 public:
  /// `limit` 0: nobody is ever silent, and no beat is due.
  Silence(std::chrono::milliseconds limit, TimePoint now)
      : limit_(limit), last_wake_(now), next_beat_(now + beat()) {}

  std::chrono::milliseconds limit() const { return limit_; }
  /// Listens for `rank` from now on, as if it had just spoken.
  void on_heard(Rank rank, TimePoint now);
  void forget(Rank rank) {
    heard_.erase(rank);
    if (heard_.empty()) earliest_ = kNever;
  }
  bool listens_for(Rank rank) const { return heard_.count(rank) > 0; }
  bool is_off() const { return limit_.count() == 0; }
  /// It spoke lately, and this side was run since.
  bool hears(Rank rank, TimePoint now) const;
  /// It was silent, or did not speak for longer than a pause that is no stop explains.
  bool misses(Rank rank, TimePoint now) const;

  /// `suspended`: for how long the machine was until now, which `now` does not count
  /// (time_suspended()).
  void on_wake(TimePoint now, Duration suspended = {});
  /// This side itself was not run for a while, the limit ago at most.
  bool was_stopped(TimePoint now) const;
  /// It was not until a moment ago: what it reads now was said meanwhile, or before.
  bool reads_old_words(TimePoint now) const { return stopped_within(beat(), now); }
  /// True once a beat.
  bool take_beat(TimePoint now);
  /// Those that should have spoken since, and may be silent soon.
  std::vector<Rank> overdue(TimePoint now) const;
  /// Those that are silent; they are forgotten.
  std::vector<Rank> take_silent(TimePoint now);
  TimePoint next_due() const;

 private:
  Duration beat() const { return limit_ / 6; }
  bool stopped_within(Duration time, TimePoint now) const {
    return stopped_until_ > TimePoint::min() && now - stopped_until_ < time;
  }

  const std::chrono::milliseconds limit_;
  std::map<Rank, TimePoint> heard_;
  // Nobody is silent before: not later than the truth, so that it need not be found anew each time.
  TimePoint earliest_ = kNever;
  TimePoint last_wake_;
  Suspensions suspensions_;
  TimePoint stopped_until_ = TimePoint::min();
  TimePoint next_beat_;
};

}  // namespace unisono::rendezvous
