#include "native/access_trials.h"

#include <algorithm>
#include <bit>

#include "native/transfer.h"
#include "transports/shm/trial_times.h"

namespace unisono::native {
namespace {

// What is tried of a class: of each path `calls` in a row, and all that `rounds` times. What the
// caches hold after one path is not what they hold after another, so the first call of a row may
// count for little.
struct Plan {
  std::uint32_t paths;  // the first of kTriedPaths
  std::uint32_t warm_ups;
  std::uint32_t calls;
  std::uint32_t rounds;
  std::uint32_t calls_until_next;  // the machine may change: a virtual processor changes its core
  std::uint32_t trials() const { return rounds * paths * calls; }
};
constexpr Plan kPlanOfCells{2, 8, 12, 2, 20000};
constexpr Plan kPlanOfShort{4, 2, 3, 2, 5000};
constexpr Plan kPlanOfLong{3, 1, 2, 2, 1000};
static_assert(kPlanOfCells.calls <= AccessTrials::kRowCallsMax);
constexpr std::size_t kLongBytes = std::size_t{1} << 20;

// A time that is written in one call is seen by all so many calls later.
constexpr std::uint64_t kCallsUntilSeen = 3;

// Class i of a collective: more than kFirstBytes << i, at most twice that, so that what fits a cell
// is apart from what does not. The last one, of more than 8 MiB, has no upper bound: who measures
// with few calls of hundreds of MiB should not wait for all of them.
constexpr std::size_t kFirstBytes = 512;
constexpr int kSizes = 15;
constexpr std::size_t kClasses = static_cast<std::size_t>(kCollectiveCount) * kSizes;
static_assert(kClasses * kTriedPaths.size() <= shm::kTrialTimes);

const Plan& plan_of(AccessTrials::Class number) {
  const std::size_t bytes = kFirstBytes << number % kSizes;
  if (bytes < shm::kCellPayloadBytes) return kPlanOfCells;
  return bytes < kLongBytes ? kPlanOfShort : kPlanOfLong;
}

}  // namespace

AccessTrials::Class AccessTrials::class_of(Collective collective, std::size_t bytes) {
  if (bytes <= kFirstBytes || bytes == kNotAgreed) return kNone;
  const int size = static_cast<int>(std::bit_width((bytes - 1) / kFirstBytes)) - 1;
  return static_cast<int>(collective) * kSizes + std::min(size, kSizes - 1);
}

bool AccessTrials::tries_window(Class number) {
  return number != kNone && plan_of(number).paths == kTriedPaths.size();
}

AccessTrials::AccessTrials(shm::SegmentGroup& group) : group_(group), states_(kClasses) {}

AccessPath AccessTrials::change(Class number, std::uint64_t sequence) {
  const Plan& plan = plan_of(number);
  State& state = states_[static_cast<std::size_t>(number)];
  if (state.next_change == 0) {
    state.next_change = state.calls + plan.warm_ups;
    return state.path;
  }
  if (state.trials < plan.trials()) {
    const std::uint32_t trial = state.trials++;
    const std::size_t path = trial / plan.calls % plan.paths;
    trial_ = {number, path, trial % plan.calls, trial < plan.paths * plan.calls};
    state.last_trial = sequence;
    return kTriedPaths[path];
  }
  if (sequence >= state.last_trial + kCallsUntilSeen) {
    state.path = fastest(number);
    state.calls = 0;
    state.next_change = plan.calls_until_next;
    state.trials = 0;
  }
  return state.path;
}

void AccessTrials::note(std::size_t bytes, Duration took) {
  const Trial trial = std::exchange(trial_, {});
  State& state = states_[static_cast<std::size_t>(trial.number)];
  const std::uint32_t calls = plan_of(trial.number).calls;
  state.row[trial.call] = shm::time_of_a_mib(bytes, took);
  if (trial.call + 1 < calls) return;
  // The time of a row is its median: at best a rank came when all was there long since.
  const auto middle = state.row.begin() + (calls - 1) / 2;
  std::nth_element(state.row.begin(), middle, state.row.begin() + calls);
  std::atomic<std::uint32_t>& least = time(group_.self(), trial.number, trial.path);
  const std::uint32_t before = trial.is_first_row ? 0 : least.load(std::memory_order_relaxed);
  // Relaxed: the flag of the next call's cell publishes it.
  least.store(shm::lesser_time(before, *middle), std::memory_order_relaxed);
}

std::atomic<std::uint32_t>& AccessTrials::time(int member, Class number, std::size_t path) const {
  return group_.trial_times(member)[static_cast<std::size_t>(number) * kTriedPaths.size() + path];
}

// The first where nothing was measured.
AccessPath AccessTrials::fastest(Class number) const {
  const auto most = [&](std::size_t path) {
    std::uint64_t time_of_path = 0;
    for (int member = 0; member < group_.size(); ++member) {
      const std::uint64_t of_member = time(member, number, path).load(std::memory_order_relaxed);
      time_of_path = std::max(time_of_path, of_member);
    }
    return time_of_path;
  };
  const std::uint64_t first = most(0);
  std::size_t best = 0;
  std::uint64_t least = first;
  for (std::size_t path = 1; path < plan_of(number).paths; ++path) {
    const std::uint64_t taken = most(path);
    if (taken == 0 || taken >= least || !shm::is_clearly_less(taken, first)) continue;
    least = taken;
    best = path;
  }
  return kTriedPaths[best];
}

}  // namespace unisono::native
