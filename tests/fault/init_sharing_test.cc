// A rank that dies or is stopped in init() while the ranks of its host share memory: the others
// wait for it there, and hear of it from the job.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <tuple>

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

class InitSharing : public testing::TestWithParam<std::tuple<std::string, Rank>> {};

TEST_P(InitSharing, NamesWhoEndsOrStops) {
  const auto& [transport, victim] = GetParam();
  const auto job_of = [&](int signal) {
    return InitJob(transport, victim, {"TEST_SIGNAL_WHILE_SHARING=" + std::to_string(signal)});
  };
  InitJob killed = job_of(SIGKILL), stopped = job_of(SIGSTOP);
  killed.expect_victim_to_be_named(true, "killed");
  stopped.expect_victim_to_be_named(true, "stopped");
}

INSTANTIATE_TEST_SUITE_P(Transports, InitSharing,
                         testing::Combine(testing::Values("auto", "shm"), testing::Values(0, 2)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_rank" +
                                  std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace unisono::test
