// A process forks while another thread of it joins its first job, wherever that draws random bytes:
// the child has jobs of its own. Each fork is in a process that had none before.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/support/watchdog.h"
#include "unisono/unisono.hpp"

namespace unisono::test {
namespace {

std::atomic<int> draws_until_hold{-1};  // below 0: nobody is held
std::atomic<bool> is_held{false}, may_go_on{false};

void hold_when_due() {
  if (draws_until_hold.load() < 0 || draws_until_hold.fetch_sub(1) != 0) return;
  is_held = true;
  while (!may_go_on) sched_yield();
}

}  // namespace
}  // namespace unisono::test

// The library's and the system's.
extern "C" ssize_t getrandom(void* out, std::size_t bytes, unsigned flags) {
  unisono::test::hold_when_due();
  return syscall(SYS_getrandom, out, bytes, flags);
}

namespace unisono::test {
namespace {

constexpr int kWorks = 0, kFails = 1, kNoSuchDraw = 2;

int run_job() {
  try {
    spawn(2, [](Communicator& comm) { comm.barrier(); }, {.transport = "shm"});
    return kWorks;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return kFails;
  }
}

int exit_of(pid_t child) {
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : kFails;
}

int fork_at_draw(int draw) {
  draws_until_hold = draw;
  std::atomic<bool> has_ended{false};
  std::thread first([&has_ended] {
    run_job();
    has_ended = true;
  });
  while (!is_held && !has_ended) sched_yield();
  int outcome = kNoSuchDraw;
  if (is_held) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);  // ends it where it hangs
      _exit(run_job());
    }
    outcome = exit_of(child);
  }
  may_go_on = true;
  first.join();
  return outcome;
}

TEST(FirstFork, LeavesTheChildJobsOfItsOwn) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers' own locks are not held across a fork";
  int outcome = kWorks, draw = 0;
  for (; outcome == kWorks; ++draw) {
    const pid_t process = fork();
    if (process == 0) _exit(fork_at_draw(draw));
    outcome = exit_of(process);
  }
  EXPECT_EQ(outcome, kNoSuchDraw) << "at draw " << draw - 1;
  EXPECT_GT(draw, 3) << "nothing was drawn";
}

}  // namespace
}  // namespace unisono::test
