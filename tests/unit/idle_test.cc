// Which way of waiting is chosen, and that threads beside the ranks count in it.
#include "engine/idle.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "comm/runtime.h"
#include "tests/support/map_store.h"
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
using std::chrono::milliseconds;
using Who = Contention::Who;

long preemptions() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

TEST(Contention, IsForgottenAfterAWhile) {
  Contention core;
  core.note(Who::kNobody, kStart);
  EXPECT_EQ(core.who(), Who::kNobody);
  core.note(Who::kCompany, kStart);
  core.note(Who::kNobody, kStart + milliseconds(10));
  EXPECT_EQ(core.who(), Who::kCompany);
  core.note(Who::kRival, kStart + milliseconds(15));
  EXPECT_EQ(core.who(), Who::kRival) << "who counts for more";
  core.note(Who::kCompany, kStart + milliseconds(16));
  EXPECT_EQ(core.who(), Who::kRival);
  core.note(Who::kNobody, kStart + milliseconds(500));
  EXPECT_EQ(core.who(), Who::kNobody);
}

TEST(Contention, OfRanksThatShareACoreIsExpected) {
  Contention core;
  core.yielded(milliseconds(2), true, kStart);
  EXPECT_EQ(core.who(), Who::kNobody);
  core.yielded(milliseconds(4), true, kStart);
  EXPECT_EQ(core.who(), Who::kRival) << "a whole turn";
}

TEST(Contention, CompanyIsWhatTheKernelSaysItIs) {
  std::thread([] {
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(static_cast<unsigned>(sched_getcpu()), &here);
    ASSERT_EQ(sched_setaffinity(0, sizeof here, &here), 0);
    Contention().yielded(milliseconds(1), false, kStart);  // counts from here on
    const long before = preemptions();
    const std::jthread rival([](const std::stop_token& end) {
      while (!end.stop_requested()) cpu_relax();
    });
    while (preemptions() == before) sched_yield();
    Contention core;
    core.yielded(std::chrono::nanoseconds(300), false, kStart);
    EXPECT_EQ(core.who(), Who::kNobody) << "too short for anybody";
    core.yielded(milliseconds(1), false, kStart);
    EXPECT_EQ(core.who(), Who::kCompany);
  }).join();
}

TEST(Contention, ThatStaysIsLookedForMoreAndMoreSeldom) {
  Contention core;
  TimePoint now = kStart;
  milliseconds longest{0};
  for (int turn = 0; turn < 20; ++turn) {
    core.note(Who::kRival, now);
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
  core.note(Who::kRival, now);
  core.note(Who::kNobody, now + longest / 2);
  EXPECT_EQ(core.who(), Who::kNobody) << "after a quiet time it begins anew";
}

TEST_F(IdleChoiceTest, OnATakenCoreSleepsSoon) {
  const IdleChoice choice("auto", {.ranks = 2, .processes = 2, .here = 1, .cores = 2});
  EXPECT_GT(choice.now().sleep_after, milliseconds(1));
  EXPECT_EQ(choice.now(Who::kCompany).spins, 0);
  EXPECT_EQ(choice.now(Who::kRival).sleep_after, Duration::zero());
  EXPECT_LT(choice.now(Who::kRival).spin_for, milliseconds(1));
  const IdleChoice users("spin", {.ranks = 2, .processes = 2, .here = 1, .cores = 2});
  EXPECT_EQ(users.now(Who::kRival).sleep_after, Duration::max());
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
