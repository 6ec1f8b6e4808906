#include "tests/sim/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "rendezvous/quorum.h"
#include "tests/sim/control_plane.h"
#include "tests/sim/growing_simulation.h"
#include "tests/sim/interleaving.h"
#include "tests/sim/partition.h"
#include "tests/sim/rank.h"
#include "tests/sim/virtual_clock.h"

namespace unisono::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// No job takes longer, whatever happens to it: deadlines of calls, what is decided then, shrinking
// some times, and the time after which ranks leave.
constexpr Duration kLongest = seconds(150);
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
  struct Seat {
    std::unique_ptr<SimulatedRank> rank;
    bool is_scheduled = false;
    bool is_dead = false;
    bool is_slow = false;
    bool is_missed = false;    // for a while it is not run
    bool wakes_again = false;  // it was woken while it was interrupted
    TimePoint runs_again{};    // kNever: is stopped for ever
    TimePoint gone_at = kNever;
    std::unique_ptr<Interleaving> interleaving{};
    bool is_interrupted() const {
      return interleaving != nullptr && interleaving->is_interrupted();
    }
  };

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
  bool is_judged(const Seat& seat) const { return !seat.is_dead && seat.runs_again != kNever; }
  bool is_over() const {
    return std::all_of(seats_.begin(), seats_.end(), [&](const Seat& s) { return is_gone(s); });
  }
  void judge();
  void judge_failures();
  void judge_survivors();
  void judge_refused();
  void judge_partition();
  /// Whether an arbiter may have been on its side of a partition then.
  bool may_have_arbiter(Rank rank, TimePoint when) const;
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
        its.runs_again = kNever;
        note_gone(fault.rank);
      } else {
        its.runs_again = std::max(its.runs_again, schedule_.now() + fault.lasts);
        its.is_missed = its.is_missed || (c_.silence.count() > 0 && fault.lasts >= c_.silence);
      }
      break;
    case Fault::Kind::kSlow:
      its.is_slow = true;
      break;
    case Fault::Kind::kDiffers:  // from the start
      break;
    case Fault::Kind::kPartition:
      partition_.begin(fault);
      if (fault.is_for_ever()) {
        fabric_.part([this](Rank a, Rank b) { return partition_.separates(a, b); });
      }
      break;
    case Fault::Kind::kPause:
      for (Seat& each : seats_) {
        if (each.runs_again == kNever) continue;
        const TimePoint until = schedule_.now() + fault.lasts + random_.up_to(kWakesWithin);
        each.runs_again = std::max(each.runs_again, until);
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
    } else if (schedule_.now() - began_ > kLongest) {
      accuse("hangs: it is not over in time; " + whereabouts());
    }
  }
  if (wrong_.empty()) judge();
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

void Simulation::judge() {
  judge_failures();
  judge_survivors();
  judge_refused();
  judge_partition();
}

// The named rank is one that failed, and all that are left name the same one.
void Simulation::judge_failures() {
  const std::set<Rank> guilty = culprits(c_);
  // Of one link nobody can tell which end broke it, nor where most that knew have left.
  const bool all_saw = std::all_of(seats_.begin(), seats_.end(), [&](const Seat& each) {
    return !is_judged(each) || !each.rank->failures().empty();
  });
  const bool only_crashes = std::all_of(c_.faults.begin(), c_.faults.end(), [](const Fault& f) {
    return f.kind == Fault::Kind::kCrash || f.kind == Fault::Kind::kSlow;
  });
  const bool only_differs = std::all_of(c_.faults.begin(), c_.faults.end(), [](const Fault& f) {
    return f.kind == Fault::Kind::kDiffers;
  });
  const bool links_broke = std::any_of(c_.faults.begin(), c_.faults.end(), [](const Fault& f) {
    return f.kind == Fault::Kind::kCut || f.kind == Fault::Kind::kIsolate;
  });
  // Where as many fail as are left, these may take themselves for the ones that are cut off.
  const bool is_minority = 2 * guilty.size() >= seats_.size() && guilty.size() > 1;
  const bool anybody = is_minority || (isolates_ && !(may_tell_ends_ && all_saw));
  // So where the others have left: they hear that, and who was not heard names them.
  const auto stayed = std::count_if(seats_.begin(), seats_.end(), [&](const Seat& each) {
    return is_judged(each) && !each.rank->failures().empty() && !guilty.contains(each.rank->rank());
  });
  const bool are_few = static_cast<std::size_t>(stayed) <= guilty.size();
  const Fault* const partition = lasting_partition(c_);
  // By communicator, and side of a partition.
  std::map<std::pair<std::uint32_t, bool>, const std::pair<const SimulatedRank*, Status>> told;
  for (const Seat& each : seats_) {
    if (!is_judged(each)) continue;
    for (const SimulatedRank::Seen& failure : each.rank->failures()) {
      const auto& [communicator, seen, was_alone, was_seeking, is_part, when] = failure;
      // It knows for whom it waits, and finds nobody who knows for whom that one does.
      const bool is_own_timeout = (was_alone || was_seeking) && seen.code() == ErrorCode::kTimeout;
      const bool is_cut_off =
          seen.code() == ErrorCode::kPartitioned && seen.rank() == each.rank->rank();
      const bool is_true =
          anybody || guilty.contains(seen.rank()) ||
          (seen.rank() < 0 && !guilty.empty() &&
           (seen.code() == ErrorCode::kTimeout ||
            (only_differs && seen.code() == ErrorCode::kMismatch))) ||
          (are_few && (each.is_missed || is_cut_off)) ||
          // The whole failed while it was split: its dead may be in another part.
          (is_part && seen.rank() < 0 && !guilty.empty()) || (is_own_timeout && !guilty.empty()) ||
          // All others have left, and what it waits for was lost.
          (seen.rank() < 0 && !guilty.empty() && seen.code() == ErrorCode::kRankLeft) ||
          // Those that have gone on without it have left.
          (seen.code() == ErrorCode::kRankLeft && each.is_missed);
      if (!is_true) {
        return accuse(fmt::format("blames rank {}, which did nothing: {} ({})", seen.rank(),
                                  each.rank->whereabouts(), seen.message()));
      }
      if (only_differs && seen.code() != ErrorCode::kMismatch) {
        return accuse("calls that differ are taken for something else: " +
                      each.rank->whereabouts());
      }
      // Who dies is noticed by that.
      if (only_crashes && seen.code() == ErrorCode::kTimeout) {
        return accuse("a death is taken for a passed deadline: " + each.rank->whereabouts());
      }
      if (each.is_missed) continue;  // the job has gone on without it
      // Where the rank beside the arbiter has left, each hears it of itself.
      if (is_cut_off) continue;
      // Who hears both parts, as the network is back, has the word of the one or of the other.
      if (partition != nullptr && !partition->is_for_ever()) continue;
      // What was said as the network went down may have reached some only.
      if (partition != nullptr && std::chrono::abs(when - began_ - partition->at) <= kControlDelay)
        continue;
      // Where the standbys of a part are elsewhere or have left, each goes by its own deadline.
      const bool was_left_alone = partition != nullptr && seen.code() == ErrorCode::kTimeout;
      if (was_left_alone || !may_have_arbiter(each.rank->rank(), began_)) continue;
      if (is_own_timeout) continue;
      // Who has nobody left to ask says that it was the other end.
      const bool goes_by_links = links_broke || !may_have_arbiter(each.rank->rank(), when);
      if (was_alone && goes_by_links) continue;
      const bool side = partition != nullptr && is_inside(*partition, each.rank->rank());
      const auto& [first, verdict] =
          told.try_emplace({communicator, side}, each.rank.get(), seen).first->second;
      if (verdict.code() != seen.code() || verdict.rank() != seen.rank()) {
        return accuse(fmt::format("verdicts on {} differ: {} ({}); {} ({})", communicator,
                                  first->whereabouts(), verdict.message(), each.rank->whereabouts(),
                                  seen.message()));
      }
    }
  }
}

// All survivors of a communicator go on in the same one, or in none.
void Simulation::judge_survivors() {
  std::map<std::uint32_t, const SimulatedRank::Shrunk*> made;
  for (const Seat& each : seats_) {
    if (!is_judged(each) || each.is_missed) continue;
    for (const SimulatedRank::Shrunk& shrunk : each.rank->shrunk()) {
      const auto& known = made.try_emplace(shrunk.from, &shrunk).first->second;
      if (known->to != shrunk.to || known->members != shrunk.members) {
        return accuse("survivors go on apart: " + each.rank->whereabouts());
      }
    }
  }
  for (const auto& entry : made) {
    const SimulatedRank::Shrunk* const shrunk = entry.second;
    for (const Rank member : shrunk->members) {
      const Seat& its = seat(member);
      if (!is_judged(its) || its.is_missed) continue;
      const auto& all = its.rank->shrunk();
      const bool went_on = std::any_of(all.begin(), all.end(),
                                       [&](const auto& each) { return each.to == shrunk->to; });
      if (!went_on) accuse("a survivor does not go on with the others: " + its.rank->whereabouts());
    }
  }
}

// Who did nothing goes on. Where rank 0 is lost its successors may have left, or be one rank alone;
// and where most have left, those that are silent may be the greater part.
void Simulation::judge_refused() {
  const std::set<Rank> guilty = culprits(c_);
  const bool is_minority = 2 * guilty.size() >= seats_.size();
  const auto stayed = std::count_if(seats_.begin(), seats_.end(), [&](const Seat& each) {
    return is_judged(each) && (each.rank->is_refused() || !each.rank->shrunk().empty()) &&
           !guilty.contains(each.rank->rank());
  });
  const bool are_few = static_cast<std::size_t>(stayed) <= guilty.size();
  if (is_minority || are_few || isolates_ || guilty.contains(0)) return;
  for (const Seat& each : seats_) {
    if (is_judged(each) && each.rank->is_refused() && !guilty.contains(each.rank->rank())) {
      return accuse("a survivor is left out: " + each.rank->whereabouts());
    }
  }
}

bool Simulation::may_have_arbiter(Rank rank, TimePoint when) const {
  const Fault* const partition = lasting_partition(c_);
  if (partition == nullptr) return true;
  const auto is_beside = [&](Rank holder) {
    const bool is_there = seats_[static_cast<std::size_t>(holder)].gone_at >= when;
    return is_there && is_inside(*partition, holder) == is_inside(*partition, rank);
  };
  const std::vector<Rank>& standbys = control_.standbys();
  return is_beside(0) || std::any_of(standbys.begin(), standbys.end(), is_beside);
}

// Of two parts that do not hear each other the right one goes on, if any, and the other one hears
// why it may not. Where somebody dies as well it depends on who has heard of that; and where the
// network is back in the end, on who is heard again in time, but some go on.
void Simulation::judge_partition() {
  const Fault* const partition = lasting_partition(c_);
  if (partition == nullptr || c_.faults.size() > 1 || !can_shrink(c_)) return;
  rendezvous::Parts parts;
  bool have_all_tried = true;
  const bool zero_is_inside = is_inside(*partition, 0);
  for (Rank rank = 0; rank < c_.ranks; ++rank) {
    const SimulatedRank& its = *seat(rank).rank;
    (is_inside(*partition, rank) == zero_is_inside ? parts.here : parts.elsewhere).insert(rank);
    have_all_tried = have_all_tried && (its.is_refused() || !its.shrunk().empty());
  }
  if (!have_all_tried || parts.elsewhere.empty()) return;
  // Without an arbiter nobody goes on.
  const bool is_of_zero =
      rendezvous::may_go_on(parts) || !may_have_arbiter(*parts.elsewhere.begin(), began_);
  const std::set<Rank>& right = is_of_zero ? parts.here : parts.elsewhere;
  if (!partition->is_for_ever()) {
    const bool some_go_on = std::any_of(seats_.begin(), seats_.end(), [](const Seat& each) {
      return !each.rank->shrunk().empty();
    });
    if (!some_go_on && may_have_arbiter(*right.begin(), began_))
      accuse("no part of a partition goes on");
    return;
  }
  for (const Seat& each : seats_) {
    const SimulatedRank& its = *each.rank;
    const bool is_right = right.contains(its.rank());
    if (!is_right && !its.shrunk().empty()) {
      return accuse("the wrong part goes on: " + its.whereabouts());
    }
    // Who is heard by the others may be named for a broken link.
    if (!is_right && !partition->is_one_way && its.refusal().code() != ErrorCode::kPartitioned) {
      return accuse("a part that may not go on is told something else: " + its.refusal().message() +
                    "; " + its.whereabouts());
    }
    if (is_right && may_have_arbiter(its.rank(), began_) && its.shrunk().empty()) {
      return accuse("the part that may does not go on: " + its.refusal().message() + "; " +
                    its.whereabouts());
    }
  }
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
