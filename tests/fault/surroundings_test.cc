// Processes whose surroundings are not as usual: a profiler's signals interrupt their system calls,
// files in memory must not be executable, or threads are few. Jobs run there as anywhere, or say
// why they do not.
#include <gmock/gmock.h>
#include <grp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "tests/fault/role_report.h"
#include "tests/support/child_process.h"
#include "tests/support/interruptions.h"
#include "tests/support/tested_transports.h"
#include "unisono/unisono.hpp"

namespace unisono::test {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

// ---- Roles ---------------------------------------------------------------------------------

// The sum of 1 to the number of ranks in calls of all sizes, and by all ways to memory.
bool all_calls_are_right(Communicator& comm) {
  const int sum = comm.size() * (comm.size() + 1) / 2;
  bool right = true;
  for (const std::size_t count : {1u, 1000u, 50'000u, 2'000'000u}) {
    std::vector<int> own(count, comm.rank() + 1);
    comm.all_reduce(own, ops::sum);
    right = right && own.front() == sum && own.back() == sum;
    std::vector<int> gathered(count * static_cast<std::size_t>(comm.size()));
    comm.all_gather(std::vector<int>(count, comm.rank()), gathered);
    right = right && gathered.back() == comm.size() - 1;
  }
  SharedBuffer<int> shared(comm, std::size_t{4} << 20);
  std::fill(shared.begin(), shared.end(), 1);
  comm.all_reduce(shared, ops::sum);
  return right && shared[0] == comm.size() && shared[shared.size() - 1] == comm.size();
}

void say_whether_right(Communicator& comm, int round) {
  bool right = all_calls_are_right(comm);
  Communicator half = comm.split(comm.rank() % 2, comm.rank());
  right = all_calls_are_right(half) && right;
  half.close();
  comm.barrier();
  std::printf("round %d: %s\n", round, right ? "right" : "wrong");
  std::fflush(stdout);
}

// Jobs from end to end: they meet, call, split and close.
int work_while_interrupted() {
  const Interruptions interruptions(std::chrono::milliseconds(1));
  try {
    for (int round = 0; round < 2; ++round) {
      Communicator comm = init();
      say_whether_right(comm, round);
      comm.close();
    }
  } catch (const Error& error) {
    return report(error);
  }
  std::printf("interrupted %s\n", interruptions.count() > 0 ? "often" : "never");
  return 0;
}

constexpr int kNoNamespace = 77, kCannotBecome = 78;

// The first process of a namespace of processes, to which the setting belongs.
int work_as_the_first() {
  std::ofstream setting("/proc/sys/vm/memfd_noexec");
  setting << 2 << std::flush;
  if (!setting) return kNoNamespace;
  try {
    spawn(2, [](Communicator& comm) { say_whether_right(comm, 0); },
          {.as = SpawnOptions::As::kProcesses, .transport = "shm"});
    return 0;
  } catch (const Error& error) {
    return report(error);
  }
}

int work_without_executable_memory() {
  if (unshare(CLONE_NEWPID | CLONE_NEWNS) != 0 ||
      mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return kNoNamespace;
  }
  const pid_t first = fork();
  if (first == 0) {
    const bool sees_itself = mount("proc", "/proc", "proc", 0, nullptr) == 0;
    const int status = sees_itself ? work_as_the_first() : kNoNamespace;
    std::fflush(stdout);
    _exit(status);
  }
  int status = 0;
  const bool ended = first > 0 && waitpid(first, &status, 0) == first && WIFEXITED(status);
  // Not by exit(): whose first process has ended, that namespace takes no more of them, and the
  // leak check wants one.
  _exit(ended ? WEXITSTATUS(status) : 1);
}

// Threads and processes are limited by user, and not at all for root.
bool become(uid_t user) {
  return setgroups(0, nullptr) == 0 && setresgid(user, user, user) == 0 &&
         setresuid(user, user, user) == 0 &&
         prctl(PR_SET_DUMPABLE, 1) == 0;  // or ranks do not read each other's memory
}

// Its user's processes may have so many threads in all, where this one asks for another.
bool limit_threads(rlim_t threads) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NPROC, &limit) != 0) return false;
  limit.rlim_cur = std::min(threads, limit.rlim_max);
  return setrlimit(RLIMIT_NPROC, &limit) == 0;
}

int work_with_few_threads() {
  const bool is_limited = std::string(std::getenv("RANK")) == "1";
  if (!become(static_cast<uid_t>(std::atoi(std::getenv("TEST_USER")))) ||
      (is_limited && !limit_threads(static_cast<rlim_t>(std::atoi(std::getenv("TEST_THREADS")))))) {
    return kCannotBecome;
  }
  int status = 0;
  try {
    Communicator comm = init();
    say_whether_right(comm, 0);
    int sum = 1;
    comm.all_reduce_async(&sum, &sum, 1, DataType::kInt32, ops::sum).wait();
    comm.close();
  } catch (const Error& error) {
    status = report(error);
  }
  limit_threads(RLIM_INFINITY);  // the leak check wants one
  return status;
}

const RoleEntry few_threads_entry("work_with_few_threads", &work_with_few_threads);
const RoleEntry interrupted_entry("work_while_interrupted", &work_while_interrupted);
const RoleEntry executable_entry("work_without_executable_memory", &work_without_executable_memory);

// ---- Tests ---------------------------------------------------------------------------------

std::vector<ChildProcess> start(const char* role, int size, const std::string& transport,
                                const std::vector<std::string>& more = {}) {
  const std::string port = "MASTER_PORT=" + std::to_string(free_port());
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < size; ++rank) {
    const std::string number = std::to_string(rank), ranks_in_all = std::to_string(size);
    std::vector<std::string> environment{"RANK=" + number,
                                         "WORLD_SIZE=" + ranks_in_all,
                                         "LOCAL_RANK=" + number,
                                         "LOCAL_WORLD_SIZE=" + ranks_in_all,
                                         "MASTER_ADDR=127.0.0.1",
                                         port,
                                         "UNISONO_TRANSPORT=" + transport};
    environment.insert(environment.end(), more.begin(), more.end());
    ranks.emplace_back(role, environment);
  }
  return ranks;
}

class Interrupted : public testing::TestWithParam<std::string> {};

TEST_P(Interrupted, JobsAreRight) {
  auto ranks = start("work_while_interrupted", 4, GetParam());
  for (ChildProcess& rank : ranks) {
    EXPECT_EQ(rank.wait(), 0) << rank.output();
    EXPECT_THAT(rank.output(), HasSubstr("round 1: right\ninterrupted often"));
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, Interrupted,
                         testing::ValuesIn(tested_transports_of_processes()),
                         [](const auto& info) { return info.param; });

class FewThreads : public testing::TestWithParam<std::string> {};

// From none of its own to as many as a job has: a rank that gets too few says so, and the other one
// whose failure it was.
TEST_P(FewThreads, EndInAJobOrInTheReason) {
  int worked = 0, refused = 0;
  for (const int threads : {1, 4, 5, 6, 7, 20}) {
    // The processes of another round may not be gone yet.
    const int user = 100'000 + getpid() % 100'000 * 32 + threads;
    auto ranks = start("work_with_few_threads", 2, GetParam(),
                       {"TEST_USER=" + std::to_string(user),
                        "TEST_THREADS=" + std::to_string(threads), "UNISONO_TIMEOUT=60s"});
    const int limited = ranks[1].wait(), other = ranks[0].wait();
    if (limited == kCannotBecome) GTEST_SKIP() << "only root becomes another user";
    SCOPED_TRACE(std::to_string(threads) + "\nrank 0: " + ranks[0].output() +
                 "\nrank 1: " + ranks[1].output());
    EXPECT_EQ(other, limited);
    limited == 0 ? ++worked : ++refused;
    if (limited == 0) continue;
    EXPECT_THAT(ranks[1].output(), HasSubstr("failed with out of resources: unisono: init"));
    EXPECT_THAT(ranks[0].output(), ContainsRegex("out of resources: rank 1: .*no thread"));
  }
  EXPECT_GT(worked, 0);
  EXPECT_GT(refused, 0);
}

INSTANTIATE_TEST_SUITE_P(Transports, FewThreads, testing::Values("auto", "tcp"),
                         [](const auto& info) { return info.param; });

TEST(Surroundings, MayRefuseExecutableMemory) {
  ChildProcess child("work_without_executable_memory", {});
  const int status = child.wait();
  if (status == kNoNamespace) GTEST_SKIP() << "no namespace of processes, or no memfd_noexec in it";
  EXPECT_EQ(status, 0) << child.output();
  EXPECT_THAT(child.output(), HasSubstr("round 0: right\nround 0: right\n"));
}

}  // namespace
}  // namespace unisono::test
