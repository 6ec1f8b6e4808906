#include "native/access_trials.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <span>
#include <utility>

#include "native/transfer.h"
#include "native/way_costs.h"
#include "transports/shm/trial_times.h"

namespace unisono::native {
// Of each path `calls` one after another, of which the last ones count, because what the caches
// hold after one path is not what they hold after another; and all that `rounds` times.
struct TrialRows {
  std::uint32_t calls;
  std::uint32_t counted;
  std::uint32_t rounds;
};

// What is tried of a class. Whoever changes a plan raises kTrialsVersion (base/trial_facts.h).
struct TrialPlan {
  std::uint32_t ways;  // bit i is kTriedPaths[i]
  std::uint32_t warm_ups;
  TrialRows rows;
  std::uint32_t calls_until_next;  // all are tried again
  std::uint32_t calls_until_check;
  TrialRows long_rows = {0, 0, 0};  // of what was not far behind, if any
  std::uint32_t calls_until_long = 0;

  const TrialRows& rows_of(bool is_long) const { return is_long ? long_rows : rows; }
};

namespace {

constexpr TrialPlan with_way(TrialPlan plan, std::uint32_t way) {
  plan.ways |= way;
  return plan;
}

constexpr std::uint32_t kMappedWay = 1, kStreamedWay = 2, kSingleCopyWay = 4, kWindowWay = 8;
constexpr std::uint32_t kWaysOfCells = kMappedWay | kStreamedWay;
constexpr std::uint32_t kPrivateWays = kMappedWay | kStreamedWay | kSingleCopyWay;
constexpr TrialPlan kPlanOfCells{kWaysOfCells, 8, {12, 12, 2}, 20000, 300};
constexpr TrialPlan kPlanOfRotatingCells = with_way(kPlanOfCells, kWindowWay);
constexpr TrialPlan kPlanOfShort{kPrivateWays | kWindowWay, 2, {3, 3, 2}, 5000, 100};
constexpr TrialPlan kPlanOfLong{kPrivateWays, 1, {4, 3, 1}, 1000, 100, {12, 5, 1}, 50};
static_assert(kPlanOfCells.rows.calls <= AccessTrials::kRowCallsMax);
static_assert(kPlanOfLong.long_rows.calls <= AccessTrials::kRowCallsMax);
constexpr std::size_t kLongBytes = std::size_t{1} << 20;
constexpr std::size_t kRotatingMin = std::size_t{2} << 10;  // see README.md

// Sizes of a class differ by less, so that calls of several sizes are no change.
constexpr std::uint32_t kChangedPercent = 200;

// What is written in one call is seen by all so many calls later. Nobody writes over it before all
// have judged it: who writes the stamp of trial i has seen everyone begin the call two before it or
// a later one, and who began the call of trial i - 2 had judged all up to i - 5.
constexpr std::uint64_t kCallsUntilSeen = 3;
static_assert(shm::kTrialStamps >= 2 * kCallsUntilSeen + 1);

std::uint64_t nanoseconds(TimePoint at) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count());
}

// Class i of a collective: more than kTriedCallMin << i, at most twice that, so that what fits a
// cell is mostly apart from what does not. The last one, of more than 8 MiB, has no upper bound:
// who measures with few calls of hundreds of MiB should not wait for all of them.
constexpr std::size_t kClasses = static_cast<std::size_t>(kCollectiveCount) * kCallSizes;

std::size_t least_of(AccessTrials::Class number) { return kTriedCallMin << number % kCallSizes; }

bool goes_one_way(AccessTrials::Class number) {
  const CollectiveFacts& facts = facts_of(static_cast<Collective>(number / kCallSizes));
  const bool in_cell = least_of(number) < shm::kCellPayloadBytes;
  return native::goes_one_way(facts) && (in_cell || !shares_combining(facts));
}

const TrialPlan& plan_of(AccessTrials::Class number, bool takes_turns) {
  const std::size_t bytes = least_of(number);
  if (bytes < shm::kCellPayloadBytes) {
    const bool may_rotate = takes_turns && goes_one_way(number) && bytes >= kRotatingMin;
    return may_rotate ? kPlanOfRotatingCells : kPlanOfCells;
  }
  return bytes >= kLongBytes ? kPlanOfLong : kPlanOfShort;
}

std::uint32_t count_of(std::uint32_t ways) {
  return static_cast<std::uint32_t>(std::popcount(ways));
}

// Those whose time is not far behind the least.
std::uint32_t contenders_of(const WayTimes<kTriedPaths.size()>& times) {
  const std::uint32_t least = times[shm::fastest_way(times)];
  std::uint32_t ways = 0;
  for (std::size_t way = 0; way < times.size(); ++way) {
    if (times[way] != 0 && !shm::is_far_behind(times[way], least)) ways |= 1u << way;
  }
  return ways;
}

bool is_among(std::uint32_t ways, std::size_t way) { return (ways >> way & 1u) != 0; }

// Of those, the one that is number `index`.
std::size_t way_of(std::uint32_t ways, std::uint32_t index) {
  for (; index > 0; --index) ways &= ways - 1;
  return static_cast<std::size_t>(std::countr_zero(ways));
}

}  // namespace

AccessTrials::Class AccessTrials::class_of(Collective collective, std::size_t bytes) {
  const int size = bytes == kNotAgreed ? -1 : size_of_call(bytes);
  return size < 0 ? kNone : static_cast<int>(collective) * kCallSizes + size;
}

bool AccessTrials::tries_window(Class number) {
  return number != kNone && (plan_of(number, false).ways & kWindowWay) != 0;
}

AccessTrials::AccessTrials(shm::SegmentGroup& group) : group_(group), states_(kClasses) {
  for (Class number = 0; number < static_cast<Class>(kClasses); ++number) {
    State& state = states_[static_cast<std::size_t>(number)];
    state.plan = &plan_of(number, group.takes_turns());
    state.ways = state.plan->ways;
    state.checks = {state.plan->calls_until_check, state.plan->calls_until_next, kChangedPercent};
    if (!group.has_all_ranks()) continue;
    const bool is_known = has_times(times_in(group_.trial_memory().known.calls, number));
    is_known ? begin_with_known(number) : begin_with_predicted(number);
  }
}

AccessTrials::Times& AccessTrials::times_in(CallTimes& calls, Class number) {
  return calls[static_cast<std::size_t>(number / kCallSizes)]
              [static_cast<std::size_t>(number % kCallSizes)];
}

void AccessTrials::begin_with_known(Class number) {
  State& state = states_[static_cast<std::size_t>(number)];
  Times known = times_in(group_.trial_memory().known.calls, number);
  // A call can go only by what is tried of its class, whatever else a file says.
  for (std::size_t way = 0; way < known.size(); ++way) {
    if (!is_among(state.plan->ways, way)) known[way] = 0;
  }
  choose(state, shm::first_way(known));
  state.least = known;
  state.knows_long_rows = true;
  hold(state, state.plan->calls_until_next / shm::kKnownDivisor);
  state.next_change = state.plan->warm_ups + 1;
}

// Until the next check, or until all are tried again.
void AccessTrials::hold(State& state, std::uint32_t calls_until_trials) {
  state.phase = Phase::kHolds;
  state.trials_due = calls_until_trials;
  state.next_change = std::min(calls_until_trials, state.checks.every());
  state.calls = state.trials = 0;
}

// All members have the same facts, and so predict the same.
void AccessTrials::begin_with_predicted(Class number) {
  const shm::TrialMemory& memory = group_.trial_memory();
  const CallingRanks here{group_.size(), static_cast<int>(memory.cores)};
  const WayCosts costs = predict_class(
      memory.host, here, static_cast<Collective>(number / kCallSizes), number % kCallSizes);
  State& state = states_[static_cast<std::size_t>(number)];
  choose(state, likely_way(costs));
  // Two ranks measure in turns, where each writes what it has read: who only writes meets lines
  // that the other has read, and may be slower by more than that.
  if (group_.takes_turns() && goes_one_way(number)) return;
  for (std::size_t way = 0; way < costs.size(); ++way) {
    if (is_far(costs, way)) state.ways &= ~(1u << way);
  }
}

AccessPath AccessTrials::change(Class number, std::uint64_t sequence) {
  State& state = states_[static_cast<std::size_t>(number)];
  judge_until(sequence);
  if (state.next_change == 0) {
    state.next_change = state.calls + state.plan->warm_ups;
    return state.path;
  }
  if (state.phase == Phase::kHolds) {
    state.phase = state.calls < state.trials_due ? Phase::kChecks : Phase::kTries;
  }
  if (state.trials == 0 && settles_rotation(number)) return state.path;
  return try_next(number, sequence);
}

// Calls of the class go around each part of the rotation once before they are timed: what they find
// there in their first lap they never find again. Two ranks share the group's with other classes;
// more go around their windows, which other roots' calls have not. Of more than kLongBytes a row
// goes around. A rank alone writes there for nobody.
bool AccessTrials::settles_rotation(Class number) {
  State& state = states_[static_cast<std::size_t>(number)];
  const std::size_t bytes = least_of(number);
  if (group_.size() == 1 || !goes_one_way(number) || bytes >= kLongBytes) return false;
  const bool in_cell = bytes < shm::kCellPayloadBytes;
  for (std::size_t way = 0; way < kTriedPaths.size(); ++way) {
    const std::size_t length = lap_of(kTriedPaths[way], in_cell);
    bool& settled = group_.takes_turns() ? settled_[in_cell ? 1 : 0][way] : state.settled[way];
    if (length == 0 || settled || !is_among(ways_of(state), way)) continue;
    settled = true;
    state.path = kTriedPaths[way];
    state.next_change = state.calls + static_cast<std::uint32_t>(length / given_to_others(number));
    return true;
  }
  return false;
}

// The least that a call lays there: a block that a rank gives itself is not among it, but in a
// cell.
std::size_t AccessTrials::given_to_others(Class number) const {
  const std::size_t bytes = least_of(number);
  const bool in_parts =
      facts_of(static_cast<Collective>(number / kCallSizes)).input.holds == Holds::kBlocks;
  const bool leaves_out_own = in_parts && bytes >= shm::kCellPayloadBytes;
  return leaves_out_own ? bytes - bytes / static_cast<std::size_t>(group_.size()) : bytes;
}

// Bytes of what calls by the path go around; 0: nothing.
std::size_t AccessTrials::lap_of(AccessPath path, bool in_cell) const {
  if (in_cell) {
    const bool rotates = group_.takes_turns() && path == AccessPath::kWindow;
    return rotates ? group_.payload_rotation().size() : 0;
  }
  if (path != AccessPath::kMapped && path != AccessPath::kStreamed) return 0;
  if (!group_.takes_turns()) return shm::kWindowBytes;
  return path == AccessPath::kMapped ? group_.cached_rotation().size()
                                     : group_.streamed_rotation().size();
}

void AccessTrials::choose(State& state, std::size_t way) {
  state.chosen = way;
  state.path = kTriedPaths[way];
}

// A check looks at all, since what made no difference to private memory may to what can be read in
// place; of calls of more than kLongBytes at the chosen path alone: too few of them are made.
std::uint32_t AccessTrials::ways_of(const State& state) {
  if (state.phase != Phase::kChecks) return state.ways;
  return state.plan == &kPlanOfLong ? 1u << state.chosen : state.plan->ways;
}

AccessPath AccessTrials::try_next(Class number, std::uint64_t sequence) {
  State& state = states_[static_cast<std::size_t>(number)];
  const bool is_check = state.phase == Phase::kChecks;
  const bool is_long = !is_check && state.is_in_long_rows;
  const TrialRows& rows = state.plan->rows_of(is_long);
  const std::uint32_t ways = ways_of(state);
  const std::uint32_t in_round = count_of(ways) * rows.calls;
  if (state.trials < (is_check ? 1 : rows.rounds) * in_round) {
    const std::uint32_t trial = state.trials++;
    trial_ = {.number = number,
              .path = way_of(ways, trial % in_round / rows.calls),
              .call = trial % rows.calls,
              .is_check = is_check,
              .is_of_long_rows = is_long,
              .is_first_row = trial < in_round,
              .sequence = sequence};
    state.last_trial = sequence;
    return kTriedPaths[trial_.path];
  }
  state.path = kTriedPaths[state.chosen];
  if (sequence >= state.last_trial + kCallsUntilSeen)
    is_check ? conclude_check(state) : decide(number);
  return state.path;
}

void AccessTrials::conclude_check(State& state) {
  const std::uint32_t time = std::exchange(state.checked[state.chosen], 0);
  const std::uint32_t other = state.checked[shm::fastest_way(state.checked)];
  const bool is_due = state.checks.ask(time, state.least[state.chosen], other);
  state.checked = {};
  state.phase = is_due ? Phase::kTries : Phase::kHolds;
  state.next_change =
      is_due ? state.calls : std::min(state.trials_due, state.calls + state.checks.every());
  state.trials = 0;
}

// The times of all trials of the rows that ran are known. What short rows say of a class that has
// long ones counts as long as there is nothing better.
void AccessTrials::decide(Class number) {
  State& state = states_[static_cast<std::size_t>(number)];
  const TrialPlan& plan = *state.plan;
  const std::uint32_t contenders = contenders_of(state.least);
  const bool ends = plan.long_rows.calls == 0 || state.is_in_long_rows || count_of(contenders) < 2;
  if (ends || !state.knows_long_rows || !is_among(contenders, state.chosen)) {
    choose(state, shm::fastest_way(state.least));
  }
  if (group_.has_all_ranks() && (ends || !state.knows_long_rows)) {
    shm::note(times_in(group_.trial_memory().learned.calls, number), state.least);
  }
  state.knows_long_rows = state.knows_long_rows || ends;
  state.is_in_long_rows = !ends;
  state.ways = ends ? plan.ways : contenders;
  // Times of long rows are compared with one another alone.
  for (std::size_t way = 0; !ends && way < state.least.size(); ++way) {
    if (!is_among(contenders, way)) state.least[way] = 0;
  }
  hold(state, ends ? plan.calls_until_next : plan.calls_until_long);
}

void AccessTrials::note(std::size_t bytes, TimePoint begin, TimePoint end, bool path_matters) {
  const std::size_t place = count_made_++ % shm::kTrialStamps;
  made_[place] = std::exchange(trial_, {});
  made_[place].bytes = bytes;
  shm::TrialStamp& stamp = group_.trial_stamps(group_.self())[place];
  // Relaxed: the flag of the next call's cell publishes both.
  stamp.begin.store(nanoseconds(begin), std::memory_order_relaxed);
  stamp.end.store(nanoseconds(end), std::memory_order_relaxed);
  stamp.path_matters.store(path_matters, std::memory_order_relaxed);
}

// All trials that everyone's stamps are known of in this call.
void AccessTrials::judge_until(std::uint64_t sequence) {
  for (; count_judged_ < count_made_; ++count_judged_) {
    const std::size_t place = count_judged_ % shm::kTrialStamps;
    const Trial& trial = made_[place];
    if (trial.sequence + kCallsUntilSeen > sequence) return;
    judge(trial, shm::time_of_a_mib(trial.bytes, time_of(place)));
  }
}

void AccessTrials::judge(const Trial& trial, std::uint32_t time) {
  State& state = states_[static_cast<std::size_t>(trial.number)];
  const TrialRows& rows = state.plan->rows_of(trial.is_of_long_rows);
  state.row[trial.call] = time;
  if (trial.call + 1 < rows.calls) return;
  const std::span counted(state.row.data() + rows.calls - rows.counted, rows.counted);
  const auto middle = counted.begin() + (counted.size() - 1) / 2;
  std::nth_element(counted.begin(), middle, counted.end());
  if (trial.is_check) {
    state.checked[trial.path] = *middle;
    return;
  }
  std::uint32_t& least = state.least[trial.path];
  least = shm::lesser_time(trial.is_first_row ? 0 : least, *middle);
}

// None where the path mattered to nobody.
Duration AccessTrials::time_of(std::size_t place) const {
  std::uint64_t begin = 0, end = 0;
  bool matters = false;
  for (int member = 0; member < group_.size(); ++member) {
    const shm::TrialStamp& stamp = group_.trial_stamps(member)[place];
    begin = std::max(begin, stamp.begin.load(std::memory_order_relaxed));
    end = std::max(end, stamp.end.load(std::memory_order_relaxed));
    matters = matters || stamp.path_matters.load(std::memory_order_relaxed);
  }
  if (!matters) return Duration::zero();
  return std::chrono::nanoseconds(end > begin ? end - begin : 1);
}

}  // namespace unisono::native
