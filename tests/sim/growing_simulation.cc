#include "tests/sim/growing_simulation.h"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "base/log.h"
#include "tests/sim/growing_member.h"
#include "tests/sim/growing_process.h"
#include "tests/sim/meeting.h"
#include "tests/sim/store.h"
#include "tests/sim/virtual_clock.h"

namespace unisono::sim {
namespace {

using rendezvous::Invitation;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Process = GrowingProcess;

constexpr std::string_view kGroup = "group";
// No job takes longer; most of it counts by the silence.
Duration longest_of_growing(const Case& c) {
  return std::max<Duration>(seconds(600), c.silence * 200);
}
constexpr std::uint64_t kStepsMax = 200'000;  // for each process
constexpr Duration kWakesWithin = milliseconds(20);
constexpr Duration kPolls = microseconds(5), kPollsSlowly = milliseconds(5);
// So often members of a communicator look for newcomers in vain.
constexpr int kTriesMax = 3;
constexpr Duration kBetweenTries = milliseconds(300);
constexpr Duration kOpens = milliseconds(20);
// A newcomer waits to be let in.
constexpr Duration kNewcomerWaits = seconds(40);

class GrowingSimulation {
 public:
  explicit GrowingSimulation(const Case& c);
  ~GrowingSimulation();
  Outcome run();

 private:
  void add_process(bool is_newcomer, int key);
  int make_job(std::vector<int> processes);
  void wake(int process);
  void wake_in(int process, Duration wait);
  void poll(int process);
  TimePoint runs_at(int process) { return at(process).is_dead ? kNever : at(process).runs_again; }
  void begin_growth(Process& its);
  void begin_faults(const Process& its, std::uint64_t step);
  int process_of(const Fault& fault) const {
    return fault.is_of_newcomer ? c_.ranks + fault.rank : fault.rank;
  }
  void inject(const Fault& fault);
  void begin_partition(const Fault& fault);
  void end_process(Process& its);
  void end_rank(int job, Rank rank);

  // What processes do, by code that blocks.
  void live(Process& its);
  void live_in(Process& its);
  bool enter(Process& its);
  bool grow(Process& its, SimulatedRank& rank);
  void use_latest_place(Process& its);
  Result<SimulatedRank*> join(Process& its, const Invitation& place, TimePoint deadline,
                              const std::function<Status()>& go_on);

  Process& at(int process) { return *processes_[static_cast<std::size_t>(process)]; }
  SimulatedRank& rank_at(const Process::Place& place) const {
    return *jobs_[static_cast<std::size_t>(place.job)]->ranks[static_cast<std::size_t>(place.rank)];
  }
  bool sees_end(const Process& its, int process) {
    return at(process).is_dead && its.number / kRanksOfHost == process / kRanksOfHost;
  }
  bool is_gone(const Process& its) const;
  bool is_over() const;
  void accuse(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
  }
  std::string whereabouts() const;
  std::vector<std::string> listed() const;
  Outcome outcome() const;

  const Case& c_;
  Random random_;
  Schedule schedule_;
  VirtualClock clock_{schedule_};
  Partition partition_{schedule_, random_};
  Jobs jobs_;
  SimulatedStore store_;
  Meetings meetings_;
  std::map<int, int> job_of_meeting_;
  Processes processes_;
  const TimePoint began_;
  std::string wrong_;
};

GrowingSimulation::GrowingSimulation(const Case& c)
    : c_(c),
      random_(c.seed),
      store_(c.growing.store, random_.next(), schedule_,
             [this](int from, int to) { return partition_.passes_at(from, to); }),
      meetings_({.seed = random_.next(),
                 .wake = [this](int process) { wake(process); },
                 .runs_at = [this](int process) { return runs_at(process); },
                 .passes_at = [this](int from, int to) { return partition_.passes_at(from, to); },
                 .on_complete =
                     [this](int meeting, const std::vector<int>& processes) {
                       job_of_meeting_[meeting] = make_job(processes);
                     },
                 .on_given_up = [this](int meeting,
                                       Rank rank) { end_rank(job_of_meeting_.at(meeting), rank); }},
                schedule_),
      began_(schedule_.now()) {
  for (Rank rank = 0; rank < c.ranks; ++rank) {
    add_process(false, c.growing.keys[static_cast<std::size_t>(rank)]);
  }
  for (const Growing::Newcomer& each : c.growing.newcomers) add_process(true, each.key);
  std::vector<int> first(static_cast<std::size_t>(c.ranks));
  std::iota(first.begin(), first.end(), 0);
  static_cast<void>(make_job(first));
  for (const int process : first) {
    at(process).places.push_back({0, process, true});
    wake(process);
  }
  for (std::size_t i = 0; i < c.growing.newcomers.size(); ++i) {
    const int process = c.ranks + static_cast<int>(i);
    wake_in(process, c.growing.newcomers[i].starts);
  }
  for (const Fault& fault : c.faults) {
    if (!fault.is_in_growth) schedule_.in(fault.at, [this, fault] { inject(fault); });
  }
}

// Programs end before what they use, in vain.
GrowingSimulation::~GrowingSimulation() {
  log::set_level(log::Level::kError);
  for (const auto& each : processes_) each->program->end();
}

void GrowingSimulation::add_process(bool is_newcomer, int key) {
  const int number = static_cast<int>(processes_.size());
  processes_.push_back(std::make_unique<Process>());
  Process& its = at(number);
  its.number = number;
  its.is_newcomer = is_newcomer;
  its.key = key;
  its.program = std::make_unique<Program>(schedule_,
                                          [this, number](Duration wait) { wake_in(number, wait); });
  its.store = store_.end_for(number, *its.program, [this, number] { wake(number); });
}

int GrowingSimulation::make_job(std::vector<int> processes) {
  Case c = adapted_to(c_, static_cast<int>(processes.size()));
  c.faults = c_.faults;
  const auto wake_rank = [this, processes](Rank rank) {
    wake(processes[static_cast<std::size_t>(rank)]);
  };
  const auto passes_at = [this, processes](Rank from, Rank to) {
    return partition_.passes_at(processes[static_cast<std::size_t>(from)],
                                processes[static_cast<std::size_t>(to)]);
  };
  const ControlPlane::Options options{
      .ranks = c.ranks,
      .silence = c.silence,
      .seed = random_.next(),
      .wake = wake_rank,
      .runs_at = [this, processes](
                     Rank rank) { return runs_at(processes[static_cast<std::size_t>(rank)]); },
      .passes_at = passes_at,
      .host_of =
          [processes](Rank rank) {
            return processes[static_cast<std::size_t>(rank)] / kRanksOfHost;
          }};
  jobs_.push_back(std::unique_ptr<SimulatedJob>(
      new SimulatedJob{c,
                       processes,
                       {c_.network, c.ranks, random_.next(), schedule_, wake_rank, passes_at},
                       {options, schedule_}}));
  SimulatedJob& job = *jobs_.back();
  for (Rank rank = 0; rank < c.ranks; ++rank) {
    const int process = processes[static_cast<std::size_t>(rank)];
    job.ranks.push_back(std::make_unique<SimulatedRank>(
        rank,
        SimulatedRank::Surroundings{
            .c = job.c,
            .schedule = schedule_,
            .fabric = job.fabric,
            .memory = nullptr,
            .arbiter = job.control.arbiter_client(rank),
            .client = job.control.client(rank),
            .settle = [&job, rank] { job.control.settle(rank); },
            .on_left = [&job, rank] { job.control.on_left(rank); },
            .wake_in = [this, process](Duration wait) { wake_in(process, wait); },
            .accuse = [this](const std::string& what) { accuse(what); },
            .is_lent_after_calls = true},
        random_.next()));
    if (jobs_.size() > 1) job.ranks.back()->lend();
  }
  return static_cast<int>(jobs_.size()) - 1;
}

// ---- Who runs when ------------------------------------------------------------------------------

void GrowingSimulation::wake(int process) {
  Process& its = at(process);
  if (its.is_scheduled || is_gone(its)) return;
  its.is_scheduled = true;
  const Duration wait = random_.up_to(its.is_slow ? kPollsSlowly : kPolls);
  schedule_.at(std::max(its.runs_again, schedule_.now() + wait),
               [this, process] { poll(process); });
}

void GrowingSimulation::wake_in(int process, Duration wait) {
  schedule_.in(wait, [this, process] { wake(process); });
}

void GrowingSimulation::poll(int process) {
  Process& its = at(process);
  its.is_scheduled = false;
  if (is_gone(its)) return;
  if (schedule_.now() < its.runs_again) return wake(process);
  for (const Process::Place& place : its.places) rank_at(place).beat();
  const std::uint64_t waits = its.program->waits_made();
  if (std::exchange(its.has_begun, true)) {
    its.program->look();
  } else {
    its.program->begin([this, &its] { live(its); });
  }
  for (std::uint64_t each = waits; its.has_begun_growth && each < its.program->waits_made();
       ++each) {
    begin_faults(its, each + 1 - its.growth_began);
  }
}

void GrowingSimulation::begin_growth(Process& its) {
  if (std::exchange(its.has_begun_growth, true)) return;
  its.growth_began = its.program->waits_made();
  begin_faults(its, 0);
}

// Those of growth that begin with this step of it.
void GrowingSimulation::begin_faults(const Process& its, std::uint64_t step) {
  for (const Fault& fault : c_.faults) {
    if (!fault.is_in_growth || process_of(fault) != its.number || fault.step != step) continue;
    schedule_.in(fault.at, [this, fault] { inject(fault); });
  }
}

void GrowingSimulation::inject(const Fault& fault) {
  Process& its = at(process_of(fault));
  switch (fault.kind) {
    case Fault::Kind::kStop:
      if (fault.is_for_ever()) {
        its.runs_again = kNever;
      } else {
        its.runs_again = std::max(its.runs_again, schedule_.now() + fault.lasts);
        its.has_slept = its.has_slept || is_too_long(c_, fault.lasts);
        // Its last word may be older than the stop.
        its.is_missed =
            its.is_missed || (c_.silence.count() > 0 && fault.lasts >= c_.silence * 2 / 3);
      }
      break;
    case Fault::Kind::kSlow:
      its.is_slow = true;
      break;
    case Fault::Kind::kPause:
      for (const auto& each : processes_) {
        if (each->is_stopped()) continue;
        const TimePoint until = schedule_.now() + fault.lasts + random_.up_to(kWakesWithin);
        each->runs_again = std::max(each->runs_again, until);
        each->has_slept = each->has_slept || is_too_long(c_, fault.lasts);
      }
      break;
    case Fault::Kind::kPartition:
      begin_partition(fault);
      break;
    default:
      if (!is_gone(its)) end_process(its);
  }
}

void GrowingSimulation::begin_partition(const Fault& fault) {
  partition_.begin(fault);
  if (!fault.is_for_ever()) return;
  for (const auto& job : jobs_) {
    job->fabric.part([&](Rank a, Rank b) {
      return partition_.separates(job->processes[static_cast<std::size_t>(a)],
                                  job->processes[static_cast<std::size_t>(b)]);
    });
  }
}

void GrowingSimulation::end_process(Process& its) {
  for (const Process::Place& place : its.places) end_rank(place.job, place.rank);
  meetings_.end_process(its.number);
  its.is_dead = true;
}

void GrowingSimulation::end_rank(int number, Rank rank) {
  SimulatedJob& job = *jobs_[static_cast<std::size_t>(number)];
  if (job.ranks[static_cast<std::size_t>(rank)]->has_left()) {
    return job.control.end_after_leaving(rank);
  }
  job.fabric.end_process(rank);
  job.control.end_process(rank);
}

// ---- What a process does ------------------------------------------------------------------------

void GrowingSimulation::live(Process& its) {
  if (its.is_newcomer) {
    begin_growth(its);
    if (!enter(its)) return;
  }
  live_in(its);
}

// As in grow(): the members of a communicator make the same tries, until there are enough of them.
void GrowingSimulation::live_in(Process& its) {
  Program& program = *its.program;
  int tries = 0;
  std::uint32_t communicator = 0;
  for (;;) {
    SimulatedRank* const rank = &rank_at(its.places[its.current]);
    program.wait_until([rank] { return rank->is_lent() || rank->has_left(); });
    if (program.is_ending() || !rank->is_lent()) return;
    const std::uint32_t id = rank->lent().members().id();
    if (std::exchange(communicator, id) != id) tries = 0;
    its.has_enough = rank->lent().size() >= c_.growing.target;
    if (its.has_enough || tries++ == kTriesMax) {
      return rank->end_soon(random_.of_any_scale_up_to(seconds(1)));
    }
    program.sleep(random_.of_any_scale_up_to(kBetweenTries));
    begin_growth(its);
    if (program.is_ending()) return;
    if (grow(its, *rank)) {
      communicator = 0;
      rank->end_soon(random_.of_any_scale_up_to(seconds(1)));
    } else if (!rank->lent().usable().ok()) {
      rank->take_back();
    }
  }
}

bool GrowingSimulation::grow(Process& its, SimulatedRank& rank) {
  const TimePoint began = schedule_.now();
  const Members& members = rank.lent().members();
  its.growths.push_back({its.places[its.current].job, members.id(), members.world_ranks()});
  GrowingMember member(
      *its.program, rank, schedule_,
      [&](const Invitation& place, TimePoint deadline, const std::function<Status()>& go_on) {
        auto joined = join(its, place, deadline, go_on);
        if (joined) its.growths.back().new_job = its.places.back().job;
        return joined;
      },
      [&](const std::string& process) { return sees_end(its, std::stoi(process)); });
  const GrowOptions options{.at_most = c_.growing.target - member.size(),
                            .wait = c_.growing.wait,
                            .key = its.key,
                            .timeout = c_.growing.timeout};
  const auto has_grown =
      rendezvous::Growth(member, *its.store, kGroup, options, call_timeout(c_)).run();
  if (its.program->is_ending()) return false;
  its.growths.back().took = schedule_.now() - began;
  its.growths.back().why = has_grown.status();
  if (!has_grown || !*has_grown) return false;
  its.growths.back().has_grown = true;
  its.growths.back().agreed_at = member.agreed_at();
  use_latest_place(its);
  return true;
}

void GrowingSimulation::use_latest_place(Process& its) {
  its.current = its.places.size() - 1;
  its.places.back().is_used = true;
  rank_at(its.places.back()).take_back();
}

bool GrowingSimulation::enter(Process& its) {
  Program& program = *its.program;
  const auto accept = [&](const Invitation& place, TimePoint deadline,
                          const std::function<Status()>& go_on, milliseconds timeout) -> Status {
    UNISONO_ASSIGN(SimulatedRank* const rank, join(its, place, deadline, go_on));
    const Status used = run_call(program, rank->lent(), first_call(timeout));
    if (!used && !program.is_ending()) rank->end_soon(Duration::zero());
    return used;
  };
  const Status entered =
      rendezvous::enter_group(*its.store, kGroup, its.key, std::to_string(its.number),
                              schedule_.now() + kNewcomerWaits, accept);
  if (!entered) return false;
  use_latest_place(its);
  return true;
}

Result<SimulatedRank*> GrowingSimulation::join(Process& its, const Invitation& place,
                                               TimePoint deadline,
                                               const std::function<Status()>& go_on) {
  const Meetings::Guest guest{its.number, *its.program, *its.store, place.job,
                              place.rank, place.size,   go_on};
  UNISONO_ASSIGN(const int meeting, meetings_.join(guest, deadline));
  its.places.push_back({job_of_meeting_.at(meeting), place.rank});
  SimulatedRank* const rank = &rank_at(its.places.back());
  // As join_world(): opens transports, and measures links with the others.
  its.program->sleep(random_.of_any_scale_up_to(kOpens));
  const auto left = std::chrono::ceil<milliseconds>(deadline - schedule_.now());
  const Status measured =
      run_call(*its.program, rank->lent(), first_call(std::max(left, milliseconds(1))));
  if (measured) return rank;
  if (!its.program->is_ending()) rank->end_soon(Duration::zero());
  return measured;
}

// ---- The verdict --------------------------------------------------------------------------------

bool GrowingSimulation::is_gone(const Process& its) const {
  if (its.is_dead || its.is_stopped()) return true;
  return its.has_begun && its.program->is_over() &&
         std::all_of(its.places.begin(), its.places.end(),
                     [&](const Process::Place& place) { return rank_at(place).has_left(); });
}

bool GrowingSimulation::is_over() const {
  return std::all_of(processes_.begin(), processes_.end(),
                     [&](const auto& each) { return is_gone(*each); });
}

Outcome GrowingSimulation::run() {
  while (wrong_.empty() && !is_over()) {
    if (!schedule_.step()) {
      accuse("hangs: nothing is left to happen; " + whereabouts());
    } else if (schedule_.steps() > kStepsMax * processes_.size()) {
      accuse("hangs: it goes round in circles; " + whereabouts());
    } else if (schedule_.now() - began_ > longest_of_growing(c_)) {
      accuse("hangs: it is not over in time; " + whereabouts());
    }
  }
  if (wrong_.empty()) {
    accuse(judge_growth(c_, jobs_, processes_, partition_, listed()));
  }
  return outcome();
}

// Also where no group reads any more.
std::vector<std::string> GrowingSimulation::listed() const {
  const std::string list = "unisono/grow/" + std::string(kGroup) + "/";
  std::vector<std::string> entries;
  for (int place = 0;; ++place) {
    entries.push_back(store_.value_of(list + "place/" + std::to_string(place)));
    if (entries.back().empty()) break;
  }
  entries.pop_back();
  return entries;
}

Outcome GrowingSimulation::outcome() const {
  Outcome outcome{.wrong = wrong_, .steps = schedule_.steps(), .took = schedule_.now() - began_};
  for (const auto& each : processes_) {
    bool has_failed = false, has_shrunk = false;
    for (const Process::Place& place : each->places) {
      const SimulatedRank& rank = rank_at(place);
      outcome.calls_done += rank.calls_done();
      has_failed = has_failed || !rank.failures().empty();
      has_shrunk = has_shrunk || !rank.shrunk().empty();
    }
    outcome.ranks_failed += has_failed ? 1 : 0;
    outcome.ranks_shrunk += has_shrunk ? 1 : 0;
    outcome.ranks_grown +=
        each->places.empty() || each->places.back().job == 0 || !each->places.back().is_used ? 0
                                                                                             : 1;
  }
  return outcome;
}

std::string GrowingSimulation::whereabouts() const {
  std::string text;
  for (const auto& each : processes_) {
    if (is_gone(*each)) continue;
    text += " process " + std::to_string(each->number) + ":";
    for (const Process::Place& place : each->places) {
      text += " job " + std::to_string(place.job) + " " + rank_at(place).whereabouts();
    }
  }
  return text;
}

}  // namespace

Outcome run_growing(const Case& c) { return GrowingSimulation(c).run(); }

}  // namespace unisono::sim
