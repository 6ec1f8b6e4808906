#include "tests/sim/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "tests/sim/arbiter.h"
#include "tests/sim/rank.h"

namespace unisono::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// No job takes longer, whatever happens to it: a call's deadline, what is decided then, and the
// time after which ranks leave.
constexpr Duration kLongest = seconds(60);
constexpr Duration kPolls = microseconds(5), kPollsSlowly = milliseconds(5);
// Of a message to the arbiter, or of its own.
constexpr Duration kControlDelay = milliseconds(5);

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
    TimePoint runs_again{};  // kNever: is stopped for ever
    TimePoint last_said{}, last_told{};
  };

  void wake(Rank rank);
  void poll(Rank rank);
  void inject(const Fault& fault);
  void end_process(Rank rank);
  void report(Rank from, std::string bytes);
  void tell(Rank to, std::string bytes);
  void at_arbiter(Rank from, std::function<void()> what);
  void look_at_arbiter();
  void accuse(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
  }
  bool is_gone(const Seat& seat) const {
    return seat.is_dead || seat.rank->has_left() || seat.runs_again == kNever;
  }
  bool is_over() const {
    return std::all_of(seats_.begin(), seats_.end(), [&](const Seat& s) { return is_gone(s); });
  }
  void judge();
  std::string whereabouts() const;

  const Case& c_;
  Random random_;
  Schedule schedule_;
  Fabric fabric_;
  std::vector<Seat> seats_;
  std::optional<Arbiter> arbiter_;
  TimePoint arbiter_due_ = kNever;
  const TimePoint began_;
  std::string wrong_;
};

std::vector<Member> members_of(int ranks) {
  std::vector<Member> members(static_cast<std::size_t>(ranks));
  for (Rank rank = 0; rank < ranks; ++rank) {
    Member& member = members[static_cast<std::size_t>(rank)];
    member.rank = rank;
    member.host = member.host_name = fmt::format("host{}", rank);
    member.pid = 1000 + rank;
  }
  return members;
}

Simulation::Simulation(const Case& c)
    : c_(c),
      random_(c.seed),
      fabric_(c.network, c.ranks, random_.next(), schedule_, [this](Rank rank) { wake(rank); }),
      seats_(static_cast<std::size_t>(c.ranks)),
      began_(schedule_.now()) {
  arbiter_.emplace(members_of(c.ranks), 0,
                   [this](Rank to, std::string bytes) { tell(to, std::move(bytes)); });
  for (Rank rank = 0; rank < c.ranks; ++rank) {
    SimulatedRank::Surroundings around{
        .c = c_,
        .schedule = schedule_,
        .fabric = fabric_,
        .report = [this, rank](std::string bytes) { report(rank, std::move(bytes)); },
        .wake_in = [this,
                    rank](Duration wait) { schedule_.in(wait, [this, rank] { wake(rank); }); },
        .accuse = [this](const std::string& what) { accuse(what); },
        .leave = [this, rank] { at_arbiter(rank, [this, rank] { arbiter_->on_goodbye(rank); }); },
    };
    seats_[static_cast<std::size_t>(rank)].rank =
        std::make_unique<SimulatedRank>(rank, std::move(around), random_.next());
  }
  for (const Fault& fault : c.faults) {
    schedule_.in(fault.at, [this, fault] { inject(fault); });
  }
  for (Rank rank = 0; rank < c.ranks; ++rank) wake(rank);
}

void Simulation::inject(const Fault& fault) {
  Seat& seat = seats_[static_cast<std::size_t>(fault.rank)];
  switch (fault.kind) {
    case Fault::Kind::kCrash:
      if (!is_gone(seat)) end_process(fault.rank);
      break;
    case Fault::Kind::kCut:
      fabric_.cut(fault.rank, fault.peer);
      break;
    case Fault::Kind::kStop:
      if (fault.is_for_ever()) {
        seat.runs_again = kNever;
      } else {
        seat.runs_again = std::max(seat.runs_again, schedule_.now() + fault.lasts);
      }
      break;
    case Fault::Kind::kSlow:
      seat.is_slow = true;
      break;
  }
}

void Simulation::end_process(Rank rank) {
  seats_[static_cast<std::size_t>(rank)].is_dead = true;
  fabric_.end_process(rank);
  at_arbiter(rank, [this, rank] { arbiter_->on_closed(rank); });
}

void Simulation::wake(Rank rank) {
  Seat& seat = seats_[static_cast<std::size_t>(rank)];
  if (seat.is_scheduled || is_gone(seat)) return;
  seat.is_scheduled = true;
  const Duration wait = random_.up_to(seat.is_slow ? kPollsSlowly : kPolls);
  schedule_.at(std::max(seat.runs_again, schedule_.now() + wait), [this, rank] { poll(rank); });
}

void Simulation::poll(Rank rank) {
  Seat& seat = seats_[static_cast<std::size_t>(rank)];
  seat.is_scheduled = false;
  if (is_gone(seat)) return;
  if (schedule_.now() < seat.runs_again) return wake(rank);
  seat.rank->beat();
}

// ---- Between ranks and arbiter ------------------------------------------------------------------

void Simulation::report(Rank from, std::string bytes) {
  at_arbiter(from, [this, from, bytes = std::move(bytes)] {
    arbiter_->on_message(from, bytes, schedule_.now());
  });
}

// In order of one rank's messages.
void Simulation::at_arbiter(Rank from, std::function<void()> what) {
  Seat& seat = seats_[static_cast<std::size_t>(from)];
  seat.last_said =
      std::max(seat.last_said, schedule_.now() + random_.of_any_scale_up_to(kControlDelay));
  schedule_.at(seat.last_said, [this, what = std::move(what)] {
    what();
    look_at_arbiter();
  });
}

void Simulation::look_at_arbiter() {
  arbiter_->say(schedule_.now());
  const TimePoint due = arbiter_->next_due();
  if (due == kNever || (due >= arbiter_due_ && arbiter_due_ > schedule_.now())) return;
  arbiter_due_ = std::max(due, schedule_.now() + microseconds(1));
  schedule_.at(arbiter_due_, [this] { look_at_arbiter(); });
}

void Simulation::tell(Rank to, std::string bytes) {
  Seat& seat = seats_[static_cast<std::size_t>(to)];
  if (is_gone(seat)) return;
  seat.last_told =
      std::max(seat.last_told, schedule_.now() + random_.of_any_scale_up_to(kControlDelay));
  schedule_.at(seat.last_told, [this, to, bytes = std::move(bytes)] {
    seats_[static_cast<std::size_t>(to)].rank->hear(bytes);
    wake(to);
  });
}

// ---- The verdict --------------------------------------------------------------------------------

Outcome Simulation::run() {
  while (wrong_.empty() && !is_over()) {
    if (!schedule_.step()) {
      accuse("hangs: nothing is left to happen; " + whereabouts());
    } else if (schedule_.now() - began_ > kLongest) {
      accuse("hangs: it is not over in time; " + whereabouts());
    }
  }
  if (wrong_.empty()) judge();
  Outcome outcome{wrong_, schedule_.steps(), schedule_.now() - began_, 0, 0};
  for (const Seat& seat : seats_) {
    outcome.calls_done += seat.rank->calls_done();
    outcome.ranks_failed += seat.rank->failure().ok() ? 0 : 1;
  }
  return outcome;
}

void Simulation::judge() {
  const std::set<Rank> guilty = culprits(c_);
  const SimulatedRank* first = nullptr;
  for (const Seat& seat : seats_) {
    if (seat.is_dead || seat.runs_again == kNever || seat.rank->failure().ok()) continue;
    const Status& seen = seat.rank->failure();
    const bool is_true = guilty.contains(seen.rank()) ||
                         (seen.rank() < 0 && seen.code() == ErrorCode::kTimeout && !guilty.empty());
    if (!is_true) {
      return accuse(fmt::format("blames rank {}, which did nothing: {}", seen.rank(),
                                seat.rank->whereabouts()));
    }
    if (first == nullptr) first = seat.rank.get();
    const Status& told = first->failure();
    if (told.code() != seen.code() || told.rank() != seen.rank()) {
      return accuse("verdicts differ: " + first->whereabouts() + "; " + seat.rank->whereabouts());
    }
  }
}

std::string Simulation::whereabouts() const {
  std::string text;
  int told = 0;
  for (const Seat& seat : seats_) {
    if (is_gone(seat) || ++told > 4) continue;
    text += (text.empty() ? "" : "; ") + seat.rank->whereabouts();
  }
  return text;
}

}  // namespace

Outcome run(const Case& c) { return Simulation(c).run(); }

}  // namespace unisono::sim
