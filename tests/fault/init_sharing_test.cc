// A rank that dies or is stopped in init() while the ranks of its host share memory: the others
// wait for it there, and hear of it from the job.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <list>
#include <string>

#include "tests/fault/init_job.h"

// What shared memory reserves pages with, also in the library under test: between the hello and the
// first barrier of a rank, and before the first rank gives the others the segment.
extern "C" int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  const char* const signal = std::getenv("TEST_SIGNAL_WHILE_SHARING");
  if (signal != nullptr) raise(std::atoi(signal));
  return static_cast<int>(syscall(SYS_fallocate, fd, mode, offset, bytes));
}

namespace unisono::test {
namespace {

TEST(InitSharing, WhoEndsOrStopsIsNamed) {
  std::list<InitJob> jobs;
  for (const char* transport : {"auto", "shm"}) {
    for (const Rank victim : kInitVictims) {
      for (const int signal : {SIGKILL, SIGSTOP}) {
        const std::string setting = "TEST_SIGNAL_WHILE_SHARING=" + std::to_string(signal);
        jobs.emplace_back(transport, victim, "stay_until_told", std::vector{setting});
        jobs.back().note(setting);
      }
    }
  }
  for (InitJob& job : jobs) job.expect_victim_to_be_named(true);
}

}  // namespace
}  // namespace unisono::test
