// What a process has once, and a forked child anew.
#include "base/per_process.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <mutex>
#include <thread>

namespace unisono {
namespace {

struct Counted {
  std::mutex mutex;
  int count = 0;
};
constinit PerProcess<Counted> of_process, unasked;

TEST(PerProcess, IsOneForAllThreads) {
  EXPECT_EQ(unasked.find(), nullptr);
  Counted* other = nullptr;
  std::thread([&] { other = &of_process.get(); }).join();
  EXPECT_EQ(&of_process.get(), other);
  EXPECT_EQ(of_process.find(), other);
}

// 0: all is well in the process that is `forks` forks away from the test's.
int count_in_child(int forks) {
  if (of_process.find() != nullptr || forks_so_far() != forks) return 1;
  Counted& own = of_process.get();
  if (!own.mutex.try_lock()) return 2;
  return own.count++ == 0 && &of_process.get() == &own && own.count == 1 ? 0 : 3;
}

int exit_of(pid_t child) {
  int status = -1;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(PerProcess, IsAnotherInAForkedChildWhoeverHoldsItsLock) {
  const std::lock_guard lock(of_process.get().mutex);
  of_process.get().count = 7;
  const int forks = forks_so_far();
  const pid_t child = ::fork();
  if (child == 0) {
    if (const int wrong = count_in_child(forks + 1); wrong != 0) ::_exit(wrong);
    const pid_t grandchild = ::fork();
    if (grandchild == 0) ::_exit(count_in_child(forks + 2));
    ::_exit(exit_of(grandchild));
  }
  EXPECT_EQ(exit_of(child), 0);
  EXPECT_EQ(of_process.get().count, 7);
}

}  // namespace
}  // namespace unisono
