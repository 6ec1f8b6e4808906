// Which way of waiting is chosen, and that threads beside the ranks count in it.
#include "engine/idle.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

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
  EXPECT_EQ(IdleChoice("sleep", {}).now().sleep_after_us, 1);
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
