// Which way of waiting is chosen, and that threads beside the ranks count in it.
#include "engine/idle.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "comm/runtime.h"
#include "engine/engine.h"
#include "engine/time_slice.h"
#include "tests/support/deaf_host.h"
#include "tests/support/map_store.h"
#include "tests/support/work.h"
#include "unisono/helper_threads.h"
#include "unisono/unisono.hpp"

namespace unisono::test {
namespace {

// Without what a sanitizer has to say, at the end of a process, about threads of its parent.
[[noreturn]] void end_child(int status) {
  ::syscall(SYS_exit_group, status);
  __builtin_unreachable();
}

bool spins(const IdleChoice& choice) { return choice.now().spins > 0; }

// A rank of a job is counted by whoever runs it; here nothing runs.
class IdleChoiceTest : public testing::Test {
 protected:
  const HelperThreads own_{1};
};

TEST_F(IdleChoiceTest, SpinsOnlyWhereRanksHaveACoreEach) {
  EXPECT_TRUE(spins(IdleChoice("auto", {.ranks = 2, .processes = 2, .here = 1, .cores = 2})));
  EXPECT_FALSE(spins(IdleChoice("auto", {.ranks = 3, .processes = 3, .here = 1, .cores = 2})));
}

TEST_F(IdleChoiceTest, CountsHelpersWhileTheyLive) {
  const IdleChoice tight("auto", {.ranks = 2, .processes = 2, .here = 1, .cores = 2});
  const IdleChoice roomy("auto", {.ranks = 2, .processes = 2, .here = 1, .cores = 4});
  {
    const HelperThreads helper(1);
    EXPECT_FALSE(spins(tight));
    EXPECT_TRUE(spins(roomy)) << "one for each process";
    const HelperThreads second(1);
    EXPECT_FALSE(spins(roomy));
  }
  EXPECT_TRUE(spins(tight));
  EXPECT_TRUE(spins(roomy));
}

TEST_F(IdleChoiceTest, CountsRanksOfOneProcessOnce) {
  const HelperThreads second_rank(1);
  const IdleChoice threads("auto", {.ranks = 2, .processes = 1, .here = 2, .cores = 3});
  EXPECT_TRUE(spins(threads));
  const HelperThreads helper(1);
  EXPECT_TRUE(spins(threads)) << "three threads on three cores";
  const HelperThreads other_job(1);
  EXPECT_FALSE(spins(threads));
}

TEST_F(IdleChoiceTest, ObeysTheUser) {
  const HelperThreads helpers(64);
  EXPECT_TRUE(spins(IdleChoice("spin", {.ranks = 2, .processes = 2, .here = 1, .cores = 1})));
  EXPECT_FALSE(spins(IdleChoice("yield", {.ranks = 2, .processes = 2, .here = 1, .cores = 64})));
  EXPECT_EQ(IdleChoice("sleep", {}).now().sleep_after, Duration::zero());
}

constexpr TimePoint kStart = TimePoint{} + std::chrono::hours(1);
using std::chrono::microseconds;
using std::chrono::milliseconds;
using Who = Contention::Who;
using Idling = Looks::Idling;

TEST_F(IdleChoiceTest, OnAContendedCoreSleepsSoon) {
  const IdleChoice choice("auto", {.ranks = 2, .processes = 2, .here = 1, .cores = 2});
  EXPECT_GT(choice.now().sleep_after, milliseconds(1));
  EXPECT_EQ(choice.now(Who::kSharers).spins, 0);
  EXPECT_TRUE(choice.now(Who::kHog).sleeps_at_once());
  EXPECT_LT(choice.now(Who::kHog).spin_for, milliseconds(1));
}

TEST_F(IdleChoiceTest, TellsSharersFromHogsByTheTimeThatTheyTake) {
  const IdleChoice few("auto", {.ranks = 2, .processes = 2, .here = 1, .cores = 2});
  EXPECT_EQ(few.who_ran(microseconds(50), false), Who::kNobody) << "an interrupt";
  EXPECT_EQ(few.who_ran(microseconds(1), true), Who::kSharers);
  EXPECT_EQ(few.who_ran(milliseconds(4), true), Who::kHog);
  const IdleChoice many("auto", {.ranks = 32, .processes = 32, .here = 1, .cores = 2});
  EXPECT_NE(many.who_ran(milliseconds(4), true), Who::kHog) << "fifteen others had their turn";
}

TEST_F(IdleChoiceTest, LooksForOthersOnlyWhereThatMayChangeTheWay) {
  const HostSeats seats{.ranks = 2, .processes = 2, .here = 1, .cores = 2};
  EXPECT_TRUE(IdleChoice("auto", seats).now().probes);
  for (const char* mode : {"spin", "yield", "sleep"}) {
    const IdleChoice users(mode, seats);
    EXPECT_FALSE(users.now().probes) << mode;
    EXPECT_EQ(users.now(Who::kHog).spins, users.now().spins) << mode;
    EXPECT_EQ(users.now(Who::kHog).sleep_after, users.now().sleep_after) << mode;
  }
}

TEST(Contention, IsForgottenAfterAWhile) {
  Contention core;
  core.note(Who::kNobody, kStart);
  EXPECT_EQ(core.who(), Who::kNobody);
  core.note(Who::kSharers, kStart);
  core.note(Who::kNobody, kStart + microseconds(1'000));
  EXPECT_EQ(core.who(), Who::kSharers);
  core.note(Who::kHog, kStart + microseconds(1'500));
  EXPECT_EQ(core.who(), Who::kHog) << "who counts for more";
  core.note(Who::kSharers, kStart + microseconds(1'600));
  EXPECT_EQ(core.who(), Who::kHog);
  core.note(Who::kNobody, kStart + milliseconds(500));
  EXPECT_EQ(core.who(), Who::kNobody);
}

TEST(Contention, ThatStaysIsLookedForMoreAndMoreSeldom) {
  Contention core;
  TimePoint now = kStart;
  milliseconds longest{0};
  for (int turn = 0; turn < 20; ++turn) {
    core.note(Who::kHog, now);
    milliseconds held{0};
    for (; core.who() != Who::kNobody; now += milliseconds(1), held += milliseconds(1)) {
      core.note(Who::kNobody, now);
    }
    EXPECT_GE(held, longest);
    longest = held;
  }
  EXPECT_GE(longest, milliseconds(500));
  EXPECT_LE(longest, milliseconds(1'000)) << "a core that is free again is found within that time";
  now += milliseconds(2'000);
  core.note(Who::kHog, now);
  core.note(Who::kNobody, now + longest / 2);
  EXPECT_EQ(core.who(), Who::kNobody) << "after a quiet time it begins anew";
}

TEST(Contention, OfRanksThatAlwaysShareMakesNoSingleHogLast) {
  Contention core;
  TimePoint now = kStart;
  for (; now < kStart + milliseconds(1'000); now += milliseconds(1)) {
    core.note(Who::kSharers, now);
  }
  core.note(Who::kHog, now);
  EXPECT_EQ(core.who(), Who::kHog);
  core.note(Who::kNobody, now + milliseconds(3));
  EXPECT_EQ(core.who(), Who::kSharers);
}

// Looks for nothing at `now` until the clock has been read.
void look_until_read(Looks* looks, TimePoint now) {
  while (!looks->looked(false)) {
  }
  looks->read(now);
}

TEST(Looks, ThatSpinProbeNowAndThen) {
  const IdlePolicy plan{.spins = 1'000, .probes = true, .sleep_after = milliseconds(1)};
  Looks looks(plan);
  int relaxed = 0, yielded = 0;
  for (int look = 0; look < 999; ++look) {
    if (looks.looked(false)) looks.read(kStart);
    ++(looks.idling() == Idling::kRelax ? relaxed : yielded);
  }
  EXPECT_GT(yielded, 0);
  EXPECT_GT(relaxed, 50 * yielded);
  look_until_read(&looks, kStart);
  EXPECT_EQ(looks.idling(), Idling::kYield) << "no spin is left";
  look_until_read(&looks, kStart + milliseconds(2));
  EXPECT_EQ(looks.idling(), Idling::kSleep);
  looks.looked(true);
  looks.looked(false);
  EXPECT_EQ(looks.idling(), Idling::kRelax) << "something moved";
}

TEST(Looks, OnAContendedCoreSpinAsLongAsSomethingMoves) {
  const IdlePolicy plan = IdlePolicy::on_a_contended_core();
  Looks looks(plan);
  TimePoint now = kStart;
  for (int turn = 0; turn < 100; ++turn, now += microseconds(10)) {
    looks.looked(true);  // a look that does not read the clock
    look_until_read(&looks, now);
    EXPECT_EQ(looks.idling(), Idling::kRelax) << turn;
  }
  look_until_read(&looks, now += microseconds(100));
  EXPECT_EQ(looks.idling(), Idling::kSleep);
}

TEST(Looks, FollowANewPlan) {
  const IdlePolicy spins{.spins = 1'000}, sleeps{.sleep_after = Duration::zero()};
  Looks looks(spins);
  look_until_read(&looks, kStart);
  EXPECT_EQ(looks.idling(), Idling::kRelax);
  looks.follow(sleeps);
  EXPECT_EQ(looks.idling(), Idling::kSleep);
  EXPECT_TRUE(looks.looked(false)) << "each look reads the clock";
}

constexpr Duration kShortSlice = microseconds(100);

// Of a thread by its number in the system; 0: of the caller's. Zero where the system does not say.
Duration time_slice_of(int thread) {
  struct {  // as sched_setattr(2) has it in its first version
    std::uint32_t size = 48, policy = 0;
    std::uint64_t flags = 0, nice_and_priority = 0, runtime = 0, deadline = 0, period = 0;
  } found;
  if (::syscall(SYS_sched_getattr, thread, &found, sizeof found, 0) != 0) return Duration::zero();
  return std::chrono::nanoseconds(found.policy == SCHED_OTHER ? found.runtime : 0);
}

bool slices_can_be_short() { return time_slice_of(0) > kShortSlice; }

TEST(ShortSlices, AreAskedForOnceAndGivenBack) {
  const bool can_be_short = slices_can_be_short();
  const Duration before = time_slice_of(0);
  {
    ShortSlices slices;
    EXPECT_EQ(time_slice_of(0), before) << "nobody has asked";
    slices.ask();
    slices.ask();
    EXPECT_EQ(time_slice_of(0), can_be_short ? kShortSlice : before);
  }
  EXPECT_EQ(time_slice_of(0), before);
}

// Ends when the thread that looks has short slices, and it may.
class UntilShortSlices final : public Operation {
 public:
  explicit UntilShortSlices(bool may_end) : may_end_(may_end) {}
  void let_end() { may_end_ = true; }
  bool advance() override { return may_end_ && time_slice_of(0) == kShortSlice; }
  void fail(const Status&) override {}
  void waiting_for(std::vector<Rank>*) const override {}

 private:
  std::atomic<bool> may_end_;
};

TEST(ShortSlices, AreNotThoseOfACallback) {
  if (!slices_can_be_short()) GTEST_SKIP() << "Linux 6.12 gives threads slices of their own";
  DeafHost host;
  Engine engine(host, 1, 0, IdleChoice("sleep", {}));
  const Duration before = time_slice_of(0);
  Duration in_callback{};
  UntilShortSlices first(true), second(false);
  Task calls_back, task;
  calls_back.operation = &first;
  calls_back.on_done = [&](Task&) {
    engine.defer(work([&] {
      in_callback = time_slice_of(0);
      second.let_end();
    }));
  };
  task.operation = &second;
  {
    const Engine::Lock lock(engine);
    engine.start(calls_back);
    engine.start(task);
  }
  EXPECT_TRUE(engine.wait(task, kNever)) << "they are short again after the callback";
  EXPECT_EQ(in_callback, before);
  EXPECT_EQ(time_slice_of(0), before);
}

// The other rank comes when this has been seen, so the wait cannot end before.
TEST(ShortSlices, AreThoseOfARankThatSleepsBetweenLooks) {
  if (!slices_can_be_short()) GTEST_SKIP() << "Linux 6.12 gives threads slices of their own";
  MapStore store;
  const Duration before = time_slice_of(0);
  std::atomic<int> sleeper = 0;
  std::atomic<bool> seen = false;
  std::thread other([&] {
    Communicator comm = join(store, "slices", 1, 2);
    comm.barrier();
    while (sleeper == 0) std::this_thread::yield();
    const TimePoint until = Clock::now() + std::chrono::seconds(20);
    while (!seen && Clock::now() < until) seen = time_slice_of(sleeper) == kShortSlice;
    comm.barrier();
  });
  Communicator comm = join(store, "slices", 0, 2);
  comm.barrier();
  sleeper = ::gettid();
  comm.barrier();
  EXPECT_EQ(time_slice_of(0), before);
  other.join();
  EXPECT_TRUE(seen);
}

// However many jobs it is in: it waits in one of them at a time.
TEST(HelperThreads, AThreadWithTwoCommunicatorsCountsOnce) {
  MapStore store;
  const int before = ProcessThreads::count();
  const auto both = [&](Rank rank) {
    Communicator first = join(store, "first", rank, 2);
    Communicator second = join(store, "second", rank, 2);
    first.barrier();
    EXPECT_EQ(ProcessThreads::count(), before + 2);
    first.barrier();
    second = Communicator();
    first.barrier();
    EXPECT_EQ(ProcessThreads::count(), before + 2) << "both are still in the first one";
    first.barrier();
  };
  std::thread other([&] { both(1); });
  both(0);
  other.join();
  EXPECT_EQ(ProcessThreads::count(), before);
}

// The child of a fork has no thread of its parent's but the one that forked.
TEST(HelperThreads, AreNotInheritedByAForkedProcess) {
  const Communicator comm = init({.size = 1});  // registers what happens at a fork
  const HelperThreads two(2);
  const int before = ProcessThreads::count();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) end_child(ProcessThreads::count());
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(ProcessThreads::count(), before);
}

TEST(HelperThreads, MadeBeforeAForkTakeNothingFromTheChildsCountWhenTheyGo) {
  auto inherited = std::make_unique<HelperThreads>(2);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const HelperThreads own(1);
    inherited.reset();
    end_child(ProcessThreads::count());
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;
}

// A rank of a job of its own, where the parent's runtime is left as it is.
TEST(ForkedProcess, IsInNoJobOfItsParents) {
  MapStore store;
  const auto rank = [&](Rank rank) {
    Communicator comm = join(store, "parent", rank, 2);
    comm.barrier();
    if (rank == 0) {
      const pid_t child = ::fork();
      EXPECT_GE(child, 0);
      if (child == 0) end_child(Runtime::alive() + Runtime::open() + ProcessThreads::count());
      int status = 0;
      EXPECT_EQ(::waitpid(child, &status, 0), child);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
      EXPECT_EQ(Runtime::alive(), 2);
      EXPECT_EQ(Runtime::open(), 2);
    }
    comm.barrier();
  };
  std::thread other([&] { rank(1); });
  rank(0);
  other.join();
}

TEST(HelperThreads, ThatAreNegativeAreNone) {
  const int before = ProcessThreads::count();
  const HelperThreads none(-3);
  EXPECT_EQ(ProcessThreads::count(), before);
}

}  // namespace
}  // namespace unisono::test
