// Who has not been heard for too long, at one side of control connections over which both sides say
// something at least once a beat. A side that was itself not run for a while has missed what was
// said, as after a stop of the whole job: it starts anew and suspects nobody. No sockets, no clock
// of its own; the owner calls on_wake() whenever it wakes, by next_due() at the latest.
#pragma once

#include <list>
#include <unordered_map>
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
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;

  std::chrono::milliseconds limit() const { return limit_; }
  /// Listens for `rank` from now on, as if it had just spoken.
  void on_heard(Rank rank, TimePoint now);
  void forget(Rank rank);
  bool listens_for(Rank rank) const { return heard_.contains(rank); }
  bool is_off() const { return limit_.count() == 0; }
  /// It spoke lately, and this side was run since.
  bool hears(Rank rank, TimePoint now) const;
  /// It was silent, or did not speak for longer than one that is merely not scheduled.
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
  /// Those that should have spoken since, and may be silent soon; ascending.
  std::vector<Rank> overdue(TimePoint now) const;
  /// Those that are silent, ascending; they are forgotten.
  std::vector<Rank> take_silent(TimePoint now);
  TimePoint next_due() const;

 private:
  struct Heard {
    Rank rank;
    TimePoint at;
  };

  Duration beat() const { return limit_ / 6; }
  bool stopped_within(Duration time, TimePoint now) const {
    return stopped_until_ > TimePoint::min() && now - stopped_until_ < time;
  }

  const std::chrono::milliseconds limit_;
  // Who has not spoken for longest comes first, so that only those who are late are looked at.
  std::list<Heard> order_;
  std::unordered_map<Rank, std::list<Heard>::iterator> heard_;
  TimePoint last_wake_;
  Suspensions suspensions_;
  TimePoint stopped_until_ = TimePoint::min();
  TimePoint next_beat_;
};

}  // namespace unisono::rendezvous
