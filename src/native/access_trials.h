// How a rank's data best get to the others of its host depends on the processor, on where the ranks
// run and on the size; so the first calls of each collective and size try the paths in turn, and
// the rest go on with the fastest. Of more than 1 MiB:
//
//   call        0 | 1 ... 4  5 ... 8   9 ... 12    | 13 14  | 15 ...
//   path   mapped | mapped   streamed  single copy | mapped | the fastest
//
// Such calls find more of what they need in a large cache the longer they go one way, so some calls
// later those that were not far behind are tried again in rows of twelve. Shorter calls are tried
// in two rows: 60 calls of those that fit a cell, never by single copy (84 of more than 2 KiB where
// two ranks may go around their rotation: payload_rotation.h, kWindow here); 28 up to 1 MiB, where
// what can be read in place is tried through the window, too, because two members that take turns
// (shared_cells.h) can be faster by that. Some thousand calls later all are tried again, and sooner
// where a check shows that the machine is no longer the same: now and then a row of each path is
// timed (of more than 1 MiB of the held one), and the held one's median is more than twice its time
// in the trials or less than half of it, or another's is clearly less. (A virtual processor may
// move to a core from which lines come four times as late.)
//
// Where an earlier job has left what it learned of a class (transports/shm/trial_memory.h):
//   its calls begin with the path that was the fastest; a check comes first, before which calls
//   that go one way go around all memory that they will use, once by each path; all paths are tried
//   after a quarter of the usual number of calls.
// Where it has not:
//   its calls begin with the path that is predicted to be the fastest on this host, and the first
//   trials leave out what is predicted to be far slower (way_costs.h).
// Only groups of all ranks of the host know and tell. Blocks of unequal length are not tried. A
// call's time is that from when the last member came until the last one had what it needs: so who
// comes late does not count, and members that share a core do. A path's time is the median of the
// end of its row (of an even number the less), in the better row.
//
// All members choose alike without asking each other. Each writes beside its cells when it came and
// when it had finished, and what a member wrote in call s all the others see when call s + 3
// begins, because everyone has been seen in s + 1 by then (shared_cells.h). Should they choose
// differently all the same, nothing is lost but time: the path is each owner's own, told with every
// call.
//
// Thread rule: one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/access_path.h"
#include "base/clock.h"
#include "base/collective.h"
#include "base/trial_facts.h"
#include "transports/shm/segment_group.h"
#include "transports/shm/way_checks.h"

namespace unisono::native {

/// What is tried of a class, and for how many calls.
struct TrialPlan;

class AccessTrials {
 public:
  /// Calls that are tried together: of one collective, of sizes of the same power of two.
  using Class = std::int32_t;
  static constexpr std::uint32_t kRowCallsMax = 12;  // trials of a path in a row
  static constexpr Class kNone = -1;  ///< too short to be worth a trial, or of unknown size
  /// The class of a call in which no member gives more than `bytes`, which may be kNotAgreed.
  static Class class_of(Collective collective, std::size_t bytes);
  /// Whether what can be read in place is tried through the window.
  static bool tries_window(Class number);

  explicit AccessTrials(shm::SegmentGroup& group);

  /// The path of call `sequence` of the group, which is one of the class. All members make the same
  /// calls.
  AccessPath next(Class number, std::uint64_t sequence) {
    State& state = states_[static_cast<std::size_t>(number)];
    return ++state.calls < state.next_change ? state.path : change(number, sequence);
  }
  /// Whether the call that next() was asked for last is to be timed.
  bool is_trial() const { return trial_.number != kNone; }
  /// When this rank began that call, of so many bytes, and when it had all and had given all;
  /// whether the path made a difference to it.
  void note(std::size_t bytes, TimePoint begin, TimePoint end, bool path_matters);

 private:
  using Times = WayTimes<kTriedPaths.size()>;
  using Settled = std::array<bool, kTriedPaths.size()>;  // ways whose rotation was gone around
  enum class Phase : std::uint8_t { kHolds, kChecks, kTries };
  struct State {
    const TrialPlan* plan = nullptr;
    Phase phase = Phase::kTries;
    std::uint32_t calls = 0;
    std::uint32_t next_change = 0;  // the call up to which `path` stays
    std::uint32_t trials_due = 0;   // the call from which on all are tried again
    std::uint32_t trials = 0;       // in this phase
    std::uint32_t ways = 0;         // that are tried: bit i is kTriedPaths[i]
    bool is_in_long_rows = false;   // the trials that run, or come next
    bool knows_long_rows = false;   // from these, or of an earlier job, is `chosen`
    Settled settled{};              // of more than two ranks
    AccessPath path = AccessPath::kMapped;
    std::size_t chosen = 0;        // what trials chose: `path`, but in these and in checks
    std::uint64_t last_trial = 0;  // number of the call
    std::array<std::uint32_t, kRowCallsMax> row{};  // times of the trials of a path that run
    Times least{};                                  // of each path's rows
    shm::WayChecks checks;
    Times checked{};  // each path's row in the check that runs
  };
  struct Trial {
    Class number = kNone;
    std::size_t path = 0;    // of kTriedPaths
    std::uint32_t call = 0;  // of the row
    bool is_check = false;
    bool is_of_long_rows = false;
    bool is_first_row = false;
    std::uint64_t sequence = 0;
    std::size_t bytes = 0;
  };

  AccessPath change(Class number, std::uint64_t sequence);
  bool settles_rotation(Class number);
  std::size_t given_to_others(Class number) const;
  std::size_t lap_of(AccessPath path, bool in_cell) const;
  AccessPath try_next(Class number, std::uint64_t sequence);
  void decide(Class number);
  static void choose(State& state, std::size_t way);
  static std::uint32_t ways_of(const State& state);
  static void conclude_check(State& state);
  static void hold(State& state, std::uint32_t calls_until_trials);
  static Times& times_in(CallTimes& calls, Class number);
  void begin_with_known(Class number);
  void begin_with_predicted(Class number);
  void judge_until(std::uint64_t sequence);
  void judge(const Trial& trial, std::uint32_t time);
  Duration time_of(std::size_t place) const;

  shm::SegmentGroup& group_;
  std::vector<State> states_;
  std::array<Settled, 2> settled_{};  // of two ranks, by whether calls fit a cell
  Trial trial_;                       // the call that runs
  // The last trials, by number; those that were not judged yet may not have been seen by all.
  std::array<Trial, shm::kTrialStamps> made_;
  std::uint64_t count_made_ = 0, count_judged_ = 0;
};

}  // namespace unisono::native
