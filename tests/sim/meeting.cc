#include "tests/sim/meeting.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/grace_periods.h"
#include "rendezvous/sockets/sockets.h"
#include "rendezvous/store/store_access.h"

namespace unisono::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kDelay = milliseconds(5);
// As in joiner.cc and introduction.cc.
constexpr Duration kBackoffMin = milliseconds(2), kBackoffMax = milliseconds(50);
constexpr Duration kLastWordTime = seconds(1);

Member member_of(int process, Rank rank) {
  Member member{.rank = rank, .pid = 1000 + process};
  member.host = member.host_name = "host" + std::to_string(process);
  return member;
}

Status rank_zero_is_gone() {
  return {ErrorCode::kRankFailed, "rank 0 died or gave up before all ranks had arrived", 0};
}

}  // namespace

Duration Meetings::delay() { return random_.of_any_scale_up_to(kDelay); }

// ---- Those that come ----------------------------------------------------------------------------

Result<int> Meetings::join(const Guest& guest, TimePoint deadline) {
  return guest.rank == 0 ? host(guest, deadline) : attend(guest, deadline);
}

Result<int> Meetings::host(const Guest& guest, TimePoint deadline) {
  const int meeting = static_cast<int>(gatherings_.size());
  gatherings_.push_back({guest.process, {guest.size, schedule_.now(), true}, deadline});
  const Status told = rendezvous::set_in_store(guest.store, guest.place, std::to_string(meeting));
  if (!told) {
    gathering(meeting).listens = false;
    return told;
  }
  at_arbiter(meeting, deadline, [this, meeting] { on_timers(meeting); });
  const Attempt attempt = converse(guest, connect(guest, meeting, guest.size), deadline);
  return attempt.why ? Result<int>(meeting) : attempt.why;
}

Result<int> Meetings::attend(const Guest& guest, TimePoint deadline) {
  Duration backoff = kBackoffMin;
  bool was_reached = false;
  TimePoint until = kNever;
  for (;;) {
    const TimePoint look = std::min(deadline, schedule_.now() + rendezvous::kGoOnEvery);
    const auto place = rendezvous::get_from_store(guest.store, guest.place, look);
    Attempt attempt{place.status()};
    int meeting = -1;
    if (place && !place->empty()) {
      meeting = std::stoi(*place);
      const bool may_listen =
          gathering(meeting).listens ||
          options_.passes_at(guest.process, gathering(meeting).process) > schedule_.now();
      attempt = may_listen ? converse(guest, connect(guest, meeting, guest.size), deadline)
                           : Attempt{{ErrorCode::kRendezvous, "nobody listens there"}};
    } else if (place) {
      attempt.why = Status(ErrorCode::kRendezvous, "the store holds nothing yet");
    }
    if (attempt.why) return meeting;
    if (attempt.is_final || guest.program.is_ending()) return attempt.why;
    UNISONO_TRY(guest.go_on());
    was_reached = was_reached || attempt.reached;
    until = attempt.reached                  ? kNever
            : was_reached && until == kNever ? schedule_.now() + grace::kReturn
                                             : until;
    if (schedule_.now() >= until) return rank_zero_is_gone();
    if (schedule_.now() >= deadline) {
      return Status(ErrorCode::kRendezvous, "did not reach rank 0: " + attempt.why.message(), 0);
    }
    guest.program.sleep(std::min<Duration>(backoff, deadline - schedule_.now()));
    backoff = std::min(backoff * 2, kBackoffMax);
  }
}

Meetings::Attempt Meetings::converse(const Guest& guest, int line, TimePoint deadline) {
  const auto fails = [&](const Status& why, bool is_final) {
    hang_up(line);
    return Attempt{why, is_final, true};
  };
  bool gave_up = false;
  for (;;) {
    const TimePoint look = std::min(deadline, schedule_.now() + rendezvous::kGoOnEvery);
    const auto has_heard = [&] { return at(line).heard != Line::Heard::kNothing; };
    if (guest.program.wait_until(has_heard, look)) break;
    const Status wanted = guest.program.is_ending() ? rank_zero_is_gone() : guest.go_on();
    if (!wanted) return fails(wanted, true);
    if (has_heard() || look < deadline) continue;
    if (std::exchange(gave_up, true)) {
      return fails({ErrorCode::kRendezvous, "rank 0 does not answer"}, true);
    }
    up(line, [this, line] {
      Gathering& its = gathering(at(line).meeting);
      if (!its.outcome) end(at(line).meeting, its.rendezvous.overdue(schedule_.now()));
    });
    deadline += kLastWordTime;
  }
  switch (at(line).heard) {
    case Line::Heard::kWelcome:
      at(line).is_open_at_guest = false;  // it is the new job's
      return {Status(), true, true};
    case Line::Heard::kRefusal:
      return fails(at(line).refusal, true);
    default:
      return fails({ErrorCode::kRendezvous, "the arbiter closed the connection"}, false);
  }
}

int Meetings::connect(const Guest& guest, int meeting, int size) {
  const int line = static_cast<int>(lines_.size());
  lines_.push_back({guest.process, meeting, guest.rank});
  up(line, [this, line, size] { admit(line, size); });
  return line;
}

void Meetings::hang_up(int line) {
  Line& its = at(line);
  if (!std::exchange(its.is_open_at_guest, false)) return;
  const int host = gathering(its.meeting).process;
  const TimePoint arrives = arrival(its.process, host, delay(), &its.last_up);
  if (arrives == kNever) {
    its.is_cut_off = true;
    const auto& outcome = gathering(its.meeting).outcome;
    if (outcome && *outcome) depart(line);
    return;
  }
  schedule_.at(arrives, [this, line] {
    const auto& outcome = gathering(at(line).meeting).outcome;
    if (outcome && *outcome) return depart(line);  // rank 0's process may have ended
    at_arbiter(at(line).meeting, schedule_.now(), [this, line] { depart(line); });
  });
}

// Perhaps too late for others to go without it.
void Meetings::depart(int line) {
  Line& its = at(line);
  if (!std::exchange(its.is_seated, false)) return;
  Gathering& there = gathering(its.meeting);
  if (there.outcome) {
    if (*there.outcome) options_.on_given_up(its.meeting, its.rank);
    return;
  }
  there.rendezvous.depart(its.rank, schedule_.now());
  if (its.rank == 0) {
    end(its.meeting, {ErrorCode::kRendezvous, "rank 0 gave up before all ranks had arrived", 0});
  }
  const int meeting = its.meeting;
  at_arbiter(meeting, there.rendezvous.next_due(), [this, meeting] { on_timers(meeting); });
}

void Meetings::end_process(int process) {
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    if (lines_[i].process == process) hang_up(static_cast<int>(i));
  }
  for (std::size_t i = 0; i < gatherings_.size(); ++i) {
    if (gatherings_[i].process != process) continue;
    gatherings_[i].listens = false;
    for (std::size_t each = 0; each < lines_.size(); ++each) {
      if (lines_[each].meeting == static_cast<int>(i)) {
        down(static_cast<int>(each), Line::Heard::kClosed);
      }
    }
  }
}

// ---- Rank 0's arbiter ---------------------------------------------------------------------------

void Meetings::at_arbiter(int meeting, TimePoint when, std::function<void()> what) {
  if (when == kNever) return;
  schedule_.at(when, [this, meeting, what = std::move(what)]() mutable {
    const TimePoint runs = options_.runs_at(gathering(meeting).process);
    if (runs == kNever) return;
    if (runs > schedule_.now()) return at_arbiter(meeting, runs, std::move(what));
    what();
  });
}

TimePoint Meetings::arrival(int from, int to, Duration takes, TimePoint* last) {
  const TimePoint passes = options_.passes_at(from, to);
  if (passes == kNever) return kNever;
  // What is sent again brings all that waits behind it.
  const bool is_stalled = *last > schedule_.now() + kDelay;
  if (!is_stalled) *last = std::max(*last, std::max(schedule_.now(), passes) + takes);
  return *last;
}

void Meetings::up(int line, std::function<void()> what) {
  Line& its = at(line);
  const int host = gathering(its.meeting).process;
  const Duration takes = its.process == host ? Duration() : delay();
  at_arbiter(its.meeting, arrival(its.process, host, takes, &its.last_up), std::move(what));
}

void Meetings::down(int line, Line::Heard heard, const Status& refusal) {
  Line& its = at(line);
  const int host = gathering(its.meeting).process;
  const TimePoint arrives = arrival(host, its.process, delay(), &its.last_down);
  if (arrives == kNever) return;
  schedule_.at(arrives, [this, line, heard, refusal] {
    Line& there = at(line);
    if (!there.is_open_at_guest || there.heard != Line::Heard::kNothing) return;
    there.heard = heard;
    there.refusal = refusal;
    options_.wake(there.process);
  });
}

void Meetings::admit(int line, int size) {
  Line& its = at(line);
  Gathering& there = gathering(its.meeting);
  if (!there.listens) return down(line, Line::Heard::kClosed);
  if (there.outcome) return down(line, Line::Heard::kRefusal, *there.outcome);
  const Status admitted = there.rendezvous.admit(member_of(its.process, its.rank), size);
  its.is_seated = true;
  there.processes[its.rank] = its.process;
  if (!admitted) return end(its.meeting, admitted);
  if (there.rendezvous.complete()) end(its.meeting, Status());
}

void Meetings::on_timers(int meeting) {
  Gathering& its = gathering(meeting);
  if (its.outcome) return;
  const TimePoint now = schedule_.now();
  if (const Status lost = its.rendezvous.lost(now); !lost) return end(meeting, lost);
  if (now >= its.deadline) return end(meeting, its.rendezvous.overdue(now));
  at_arbiter(meeting, its.rendezvous.next_due(), [this, meeting] { on_timers(meeting); });
}

void Meetings::end(int meeting, const Status& outcome) {
  Gathering& its = gathering(meeting);
  if (its.outcome) return;
  its.outcome = outcome;
  if (outcome) {
    std::vector<int> processes;
    for (const auto& [rank, process] : its.processes) processes.push_back(process);
    its.listens = false;
    options_.on_complete(meeting, processes);
  }
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    if (lines_[i].meeting != meeting || !lines_[i].is_seated) continue;
    down(static_cast<int>(i), outcome ? Line::Heard::kWelcome : Line::Heard::kRefusal, outcome);
    // It has hung up, which nobody could hear there.
    if (outcome && lines_[i].is_cut_off) depart(static_cast<int>(i));
  }
}

}  // namespace unisono::sim
