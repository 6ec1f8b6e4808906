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
  std::uint32_t paths;  // the first of kTriedPaths
  std::uint32_t warm_ups;
  TrialRows rows;
  std::uint32_t calls_until_next;  // all are tried again
  std::uint32_t calls_until_check;
  TrialRows long_rows = {0, 0, 0};  // of what was not far behind, if any
  std::uint32_t calls_until_long = 0;

  std::uint32_t all_ways() const { return (1u << paths) - 1; }
  const TrialRows& rows_of(bool is_long) const { return is_long ? long_rows : rows; }
};

namespace {

constexpr TrialPlan kPlanOfCells{2, 8, {12, 12, 2}, 20000, 300};
constexpr TrialPlan kPlanOfShort{4, 2, {3, 3, 2}, 5000, 100};
constexpr TrialPlan kPlanOfLong{3, 1, {4, 3, 1}, 1000, 100, {12, 5, 1}, 50};
static_assert(kPlanOfCells.rows.calls <= AccessTrials::kRowCallsMax);
static_assert(kPlanOfLong.long_rows.calls <= AccessTrials::kRowCallsMax);
constexpr std::size_t kLongBytes = std::size_t{1} << 20;

// Sizes of a class differ by less, so that calls of several sizes are no change.
constexpr std::uint32_t kChangedPercent = 200;
constexpr TrialRows kRowOfCheck{shm::kCheckCalls, shm::kCheckCalls, 1};

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

// Each rank only writes, or only reads.
bool goes_one_way(AccessTrials::Class number) {
  const CollectiveFacts& facts = facts_of(static_cast<Collective>(number / kCallSizes));
  return facts.has_root() && !facts.reduces;
}

const TrialPlan& plan_of(AccessTrials::Class number) {
  const std::size_t bytes = kTriedCallMin << number % kCallSizes;
  if (bytes < shm::kCellPayloadBytes) return kPlanOfCells;
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

std::size_t place_of(AccessPath path) {
  return static_cast<std::size_t>(std::find(kTriedPaths.begin(), kTriedPaths.end(), path) -
                                  kTriedPaths.begin());
}

bool is_among(std::uint32_t ways, AccessPath path) { return (ways >> place_of(path) & 1u) != 0; }

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
  return number != kNone && plan_of(number).paths == kTriedPaths.size();
}

AccessTrials::AccessTrials(shm::SegmentGroup& group) : group_(group), states_(kClasses) {
  for (Class number = 0; number < static_cast<Class>(kClasses); ++number) {
    State& state = states_[static_cast<std::size_t>(number)];
    state.plan = &plan_of(number);
    state.ways = state.plan->all_ways();
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
  std::fill(known.begin() + state.plan->paths, known.end(), 0);
  state.path = kTriedPaths[shm::first_way(known)];
  state.least = known;
  state.knows_long_rows = true;
  hold(state, state.plan->calls_until_next / shm::kKnownDivisor);
  state.next_change = state.plan->warm_ups;
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
  state.path = kTriedPaths[likely_way(costs)];
  // Two ranks measure in turns, where each writes what it has read: who only writes meets lines
  // that the other has read, and may be slower by more than that.
  if (group_.takes_turns() && goes_one_way(number)) return;
  for (std::size_t way = 0; way < state.plan->paths; ++way) {
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
  if (state.phase == Phase::kChecks) return check_next(number, sequence);
  return state.trials == 0 && settles_rotation(number) ? state.path : try_next(number, sequence);
}

// Calls of the class go around either part of the group's rotation once before they are tried,
// unless others have: what they find there in their first lap they never find again. Of more than
// kLongBytes a row goes around.
bool AccessTrials::settles_rotation(Class number) {
  State& state = states_[static_cast<std::size_t>(number)];
  const std::size_t bytes = kTriedCallMin << number % kCallSizes;
  if (!goes_one_way(number) || bytes < shm::kCellPayloadBytes || bytes >= kLongBytes) return false;
  const std::array parts{std::pair(AccessPath::kMapped, group_.cached_rotation().size()),
                         std::pair(AccessPath::kStreamed, group_.streamed_rotation().size())};
  for (std::size_t part = 0; part < parts.size(); ++part) {
    const auto [path, length] = parts[part];
    if (settled_[part] || !is_among(state.ways, path)) continue;
    settled_[part] = true;
    state.path = path;
    state.next_change = state.calls + static_cast<std::uint32_t>(length / bytes);
    return true;
  }
  return false;
}

AccessPath AccessTrials::try_next(Class number, std::uint64_t sequence) {
  State& state = states_[static_cast<std::size_t>(number)];
  const TrialRows& rows = state.plan->rows_of(state.is_in_long_rows);
  const std::uint32_t in_round = count_of(state.ways) * rows.calls;
  if (state.trials < rows.rounds * in_round) {
    const std::uint32_t trial = state.trials++;
    trial_ = {.number = number,
              .path = way_of(state.ways, trial % in_round / rows.calls),
              .call = trial % rows.calls,
              .is_of_long_rows = state.is_in_long_rows,
              .is_first_row = trial < in_round,
              .sequence = sequence};
    state.last_trial = sequence;
    return kTriedPaths[trial_.path];
  }
  if (sequence >= state.last_trial + kCallsUntilSeen) decide(number);
  return state.path;
}

AccessPath AccessTrials::check_next(Class number, std::uint64_t sequence) {
  State& state = states_[static_cast<std::size_t>(number)];
  if (state.trials < kRowOfCheck.calls) {
    trial_ = {.number = number,
              .path = place_of(state.path),
              .call = state.trials++,
              .is_check = true,
              .sequence = sequence};
    state.last_trial = sequence;
  } else if (sequence >= state.last_trial + kCallsUntilSeen) {
    conclude_check(state);
  }
  return state.path;
}

void AccessTrials::conclude_check(State& state) {
  const std::size_t way = place_of(state.path);
  const bool is_due = state.checks.ask(way, state.checked, state.least[way]);
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
  if (ends || !state.knows_long_rows || !is_among(contenders, state.path)) {
    state.path = kTriedPaths[shm::fastest_way(state.least)];
  }
  if (group_.has_all_ranks() && (ends || !state.knows_long_rows)) {
    shm::note(times_in(group_.trial_memory().learned.calls, number), state.least);
  }
  state.knows_long_rows = state.knows_long_rows || ends;
  state.is_in_long_rows = !ends;
  state.ways = ends ? plan.all_ways() : contenders;
  if (ends) state.checks.decided(place_of(state.path));
  // Times of long rows are compared with one another alone.
  for (std::size_t way = 0; !ends && way < state.least.size(); ++way) {
    if ((contenders >> way & 1u) == 0) state.least[way] = 0;
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
  const TrialRows rows = trial.is_check ? kRowOfCheck : state.plan->rows_of(trial.is_of_long_rows);
  state.row[trial.call] = time;
  if (trial.call + 1 < rows.calls) return;
  const std::span counted(state.row.data() + rows.calls - rows.counted, rows.counted);
  const auto middle = counted.begin() + (counted.size() - 1) / 2;
  std::nth_element(counted.begin(), middle, counted.end());
  if (trial.is_check) {
    state.checked = *middle;
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
