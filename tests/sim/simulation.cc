#include "tests/sim/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tests/sim/control_plane.h"
#include "tests/sim/growing_simulation.h"
#include "tests/sim/job_judge.h"
#include "tests/sim/partition.h"
#include "tests/sim/seat.h"
#include "tests/sim/virtual_clock.h"

namespace unisono::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// No job takes longer, whatever happens to it: deadlines of calls, what is decided then, shrinking
// some times, and the time after which ranks leave; most of it counts by the silence.
Duration longest(const Case& c) { return std::max<Duration>(seconds(150), c.silence * 50); }
// Nor does anything happen so often, for each rank.
constexpr std::uint64_t kStepsMax = 100'000;
// Of each other, after a pause of all.
constexpr Duration kWakesWithin = milliseconds(20);
constexpr Duration kInterrupted = microseconds(50);
constexpr Duration kPolls = microseconds(5), kPollsSlowly = milliseconds(5);

std::optional<HostMemory> memory_of(const Case& c) {
  if (c.sharing == Sharing::kNone) return std::nullopt;
  return std::optional<HostMemory>(std::in_place, c.sharing, c.domain_ranks);
}

class Simulation {
 public:
  explicit Simulation(const Case& c);
  Outcome run();

 private:
  void wake(Rank rank);
  void poll(Rank rank);
  void run_later(Rank rank, Duration wait);
  void inject(const Fault& fault);
  void end_process(Rank rank);
  void note_left(Rank rank);
  void note_gone(Rank rank) { seat(rank).gone_at = std::min(seat(rank).gone_at, schedule_.now()); }
  void accuse(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
  }
  Seat& seat(Rank rank) { return seats_[static_cast<std::size_t>(rank)]; }
  bool is_gone(const Seat& seat) const {
    return seat.is_dead || seat.rank->has_left() || seat.runs_again == kNever;
  }
  bool is_over() const {
    return std::all_of(seats_.begin(), seats_.end(), [&](const Seat& s) { return is_gone(s); });
  }
  std::string whereabouts() const;

  const Case& c_;
  Random random_;
  std::optional<HostMemory> memory_;
  Schedule schedule_;
  VirtualClock clock_{schedule_};
  Partition partition_{schedule_, random_};
  std::vector<Seat> seats_;
  Fabric fabric_;
  ControlPlane control_;
  const TimePoint began_;
  std::string wrong_;
  bool isolates_ = false;
  bool may_tell_ends_ = false;  // of the links of an isolated rank
};

Simulation::Simulation(const Case& c)
    : c_(c),
      random_(c.seed),
      memory_(memory_of(c)),
      seats_(static_cast<std::size_t>(c.ranks)),
      fabric_(
          c.network, c.ranks, random_.next(), schedule_, [this](Rank rank) { wake(rank); },
          [this](Rank from, Rank to) { return partition_.passes_at(from, to); }),
      control_({.ranks = c.ranks,
                .silence = c.silence,
                .seed = random_.next(),
                .wake = [this](Rank rank) { wake(rank); },
                .runs_at = [this](Rank rank) { return seat(rank).runs_again; },
                .passes_at = [this](Rank from, Rank to) { return partition_.passes_at(from, to); }},
               schedule_),
      began_(schedule_.now()) {
  for (Rank rank = 0; rank < c.ranks; ++rank) {
    SimulatedRank::Surroundings around{
        .c = c_,
        .schedule = schedule_,
        .fabric = fabric_,
        .memory = memory_ ? &*memory_ : nullptr,
        .arbiter = control_.arbiter_client(rank),
        .client = control_.client(rank),
        .settle = [this, rank] { control_.settle(rank); },
        .on_left = [this, rank] { note_left(rank); },
        .wake_in = [this,
                    rank](Duration wait) { schedule_.in(wait, [this, rank] { wake(rank); }); },
        .accuse = [this](const std::string& what) { accuse(what); }};
    seat(rank).rank = std::make_unique<SimulatedRank>(rank, std::move(around), random_.next());
    if (kHearsAccesses && c.interrupted_one_in > 0) {
      seat(rank).interleaving =
          std::make_unique<Interleaving>(random_.next(), c.interrupted_one_in, c.buffered_one_in);
    }
  }
  for (const Fault& fault : c.faults) {
    schedule_.in(fault.at, [this, fault] { inject(fault); });
  }
  for (Rank rank = 0; rank < c.ranks; ++rank) wake(rank);
}

void Simulation::inject(const Fault& fault) {
  Seat& its = seat(fault.rank);
  // Threads of one process do not stop apart in the middle of what others wait for.
  const bool halts = fault.kind == Fault::Kind::kCrash || fault.kind == Fault::Kind::kStop;
  if (c_.sharing == Sharing::kThreads && halts && its.is_interrupted()) {
    const Duration wait = std::max<Duration>(its.runs_again - schedule_.now(), kPolls);
    return schedule_.in(wait, [this, fault] { inject(fault); });
  }
  switch (fault.kind) {
    case Fault::Kind::kCrash:
      if (!its.is_dead) end_process(fault.rank);
      break;
    case Fault::Kind::kCut:
      fabric_.cut(fault.rank, fault.peer);
      break;
    case Fault::Kind::kIsolate:
      isolates_ = true;
      may_tell_ends_ = fabric_.isolate(fault.rank) >= 2 && c_.faults.size() == 1;
      break;
    case Fault::Kind::kStop:
      if (fault.is_for_ever()) {
        its.stop_until(schedule_.now(), kNever);
        note_gone(fault.rank);
      } else {
        its.stop_until(schedule_.now(), schedule_.now() + fault.lasts);
        its.is_missed = its.is_missed || (c_.silence.count() > 0 && fault.lasts >= c_.silence);
      }
      break;
    case Fault::Kind::kSlow:
      its.is_slow = true;
      break;
    case Fault::Kind::kReset:
      its.is_missed = control_.reset(fault.rank) || its.is_missed;
      break;
    case Fault::Kind::kDiffers:  // from the start
      break;
    case Fault::Kind::kPartition:
      partition_.begin(fault);
      if (fault.is_for_ever()) {
        fabric_.part([&](Rank a, Rank b) { return is_inside(fault, a) != is_inside(fault, b); });
      } else if (partition_.comes_again()) {
        fabric_.hold_up();
      }
      break;
    case Fault::Kind::kPause:
      for (Seat& each : seats_) {
        if (each.runs_again == kNever) continue;
        each.stop_until(schedule_.now(),
                        schedule_.now() + fault.lasts + random_.up_to(kWakesWithin));
      }
      break;
  }
}

void Simulation::note_left(Rank rank) {
  note_gone(rank);
  control_.on_left(rank);
}

void Simulation::end_process(Rank rank) {
  Seat& its = seat(rank);
  if (its.rank->has_left()) return control_.end_after_leaving(rank);
  its.is_dead = true;
  note_gone(rank);
  fabric_.end_process(rank);
  control_.end_process(rank);
}

void Simulation::wake(Rank rank) {
  Seat& its = seat(rank);
  if (its.rank == nullptr || is_gone(its)) return;
  if (its.is_interrupted()) its.wakes_again = true;
  if (its.is_scheduled || its.is_interrupted()) return;
  its.is_scheduled = true;
  const Duration wait = random_.up_to(its.is_slow ? kPollsSlowly : kPolls);
  schedule_.at(std::max(its.runs_again, schedule_.now() + wait), [this, rank] { poll(rank); });
}

void Simulation::poll(Rank rank) {
  Seat& its = seat(rank);
  its.is_scheduled = false;
  if (is_gone(its)) return;
  if (its.is_interrupted() && schedule_.now() < its.runs_again) {
    return run_later(rank, its.runs_again - schedule_.now());
  }
  if (schedule_.now() < its.runs_again) return wake(rank);
  if (its.interleaving == nullptr) return its.rank->beat();
  its.interleaving->run([&its] { its.rank->beat(); });
  if (its.is_interrupted()) {
    // It goes on first, and looks at what it was woken for then.
    its.wakes_again = its.wakes_again || its.is_scheduled;
    if (!its.is_scheduled) run_later(rank, random_.of_any_scale_up_to(kInterrupted));
  } else if (std::exchange(its.wakes_again, false)) {
    wake(rank);
  }
}

void Simulation::run_later(Rank rank, Duration wait) {
  seat(rank).is_scheduled = true;
  schedule_.in(wait, [this, rank] { poll(rank); });
}

// ---- The verdict --------------------------------------------------------------------------------

Outcome Simulation::run() {
  while (wrong_.empty() && !is_over()) {
    if (!schedule_.step()) {
      accuse("hangs: nothing is left to happen; " + whereabouts());
    } else if (schedule_.steps() > kStepsMax * seats_.size()) {
      accuse("hangs: it goes round in circles; " + whereabouts());
    } else if (schedule_.now() - began_ > longest(c_)) {
      accuse("hangs: it is not over in time; " + whereabouts());
    }
  }
  if (wrong_.empty()) {
    accuse(judge_job({.c = c_,
                      .seats = seats_,
                      .standbys = control_.standbys(),
                      .began = began_,
                      .isolates = isolates_,
                      .may_tell_ends = may_tell_ends_}));
  }
  Outcome outcome{.wrong = wrong_, .steps = schedule_.steps(), .took = schedule_.now() - began_};
  for (const Seat& each : seats_) {
    outcome.calls_done += each.rank->calls_done();
    outcome.parts_made += each.rank->parts_made();
    outcome.messages_done += each.rank->messages_done();
    outcome.ranks_failed += each.rank->failures().empty() ? 0 : 1;
    outcome.ranks_shrunk += each.rank->shrunk().empty() ? 0 : 1;
  }
  return outcome;
}

std::string Simulation::whereabouts() const {
  std::string text;
  int told = 0;
  for (const Seat& each : seats_) {
    if (is_gone(each) || ++told > 4) continue;
    text += (text.empty() ? "" : "; ") + each.rank->whereabouts();
  }
  return text;
}

}  // namespace

Outcome run(const Case& c) { return c.grows() ? run_growing(c) : Simulation(c).run(); }

}  // namespace unisono::sim
