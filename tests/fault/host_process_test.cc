// What a job does to the process it lives in, and that process to the job: signals, descriptors and
// their limit, the death of the process that spawned the ranks. Each case is a process of its own.
#include <dirent.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <thread>

#include "tests/support/child_process.h"
#include "tests/support/rank_job.h"
#include "tests/support/watchdog.h"
#include "unisono/unisono.hpp"

namespace unisono::test {
namespace {

using testing::HasSubstr;
using testing::Not;

std::set<int> numbers_in(const char* folder) {
  std::set<int> numbers;
  DIR* const dir = opendir(folder);
  if (dir == nullptr) return numbers;
  while (const dirent* entry = readdir(dir)) {
    if (entry->d_name[0] != '.') numbers.insert(std::atoi(entry->d_name));
  }
  closedir(dir);
  return numbers;
}

std::set<int> difference(const std::set<int>& all, const std::set<int>& known) {
  std::set<int> rest;
  std::set_difference(all.begin(), all.end(), known.begin(), known.end(),
                      std::inserter(rest, rest.begin()));
  return rest;
}

std::string transport_of_role() { return std::getenv("UNISONO_TRANSPORT"); }

int run_job(int ranks, const std::function<void(Communicator&)>& body,
            std::chrono::milliseconds timeout = kCallTimeout) {
  try {
    spawn(ranks, body, {.transport = transport_of_role(), .timeout = timeout});
    return 0;
  } catch (const Error& error) {
    std::printf("%s: %s\n", std::string(name_of(error.code())).c_str(), error.what());
    return 3;
  }
}

// All of them, large and small, so that every transport that is to be used has come up. The
// asynchronous call starts the progress thread.
void use_everything(Communicator& comm) {
  std::vector<float> large(300'000, 1.0F);
  Request request = comm.all_reduce_async(large, ops::sum);
  request.wait();
  float sum_of_ones = 1;
  comm.all_reduce(&sum_of_ones, &sum_of_ones, 1, DataType::kFloat32, ops::sum);
  const Rank next = (comm.rank() + 1) % comm.size();
  const Rank before = (comm.rank() + comm.size() - 1) % comm.size();
  int got = -1;
  const int sent = comm.rank();
  Request receive = comm.receive_async(&got, 1, DataType::kInt32, before);
  comm.send(&sent, 1, DataType::kInt32, next);
  receive.wait();
  if (got != before || sum_of_ones != static_cast<float>(comm.size())) {
    throw std::runtime_error("a wrong result");
  }
}

// ---- Signals -------------------------------------------------------------------------------

// No mask: two of these signals cannot be blocked.
constexpr std::uint64_t kEnded = ~std::uint64_t{0};

std::uint64_t blocked_signals(int thread) {
  std::ifstream status("/proc/self/task/" + std::to_string(thread) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("SigBlk:")) return std::stoull(line.substr(7), nullptr, 16);
  }
  return kEnded;
}

bool blocks(std::uint64_t mask, int signal) { return (mask >> (signal - 1) & 1) != 0; }

// A thread that begins or ends blocks all signals for a moment.
std::uint64_t settled_mask(int thread) {
  const auto deadline = std::chrono::steady_clock::now() + kCallTimeout;
  std::uint64_t mask = blocked_signals(thread);
  while (mask != kEnded && blocks(mask, SIGSEGV) && std::chrono::steady_clock::now() < deadline) {
    sched_yield();
    mask = blocked_signals(thread);
  }
  return mask;
}

int look_at_signal_masks() {
  // The thread sanitizer makes one of its own beside the first.
  std::thread([] {}).join();
  const std::set<int> before = numbers_in("/proc/self/task");
  std::atomic<int> rank_threads[2] = {};
  std::atomic<int> wrong{0}, seen{0};
  const int status = run_job(2, [&](Communicator& comm) {
    use_everything(comm);
    rank_threads[comm.rank()] = gettid();
    comm.barrier();
    if (comm.rank() == 0) {
      for (const int thread : difference(numbers_in("/proc/self/task"), before)) {
        const std::uint64_t mask = settled_mask(thread);
        if (mask == kEnded) continue;
        const bool is_rank = thread == rank_threads[0] || thread == rank_threads[1];
        if (!is_rank) ++seen;
        for (const int signal : {SIGTERM, SIGUSR1, SIGCHLD, SIGALRM}) {
          if (blocks(mask, signal) != is_rank) continue;
          std::printf("thread %d, signal %d: blocked %d, rank %d\n", thread, signal,
                      blocks(mask, signal), is_rank);
          ++wrong;
        }
        if (blocks(mask, SIGSEGV)) ++wrong;
      }
    }
    comm.barrier();
  });
  std::printf("%d threads of the library\n", seen.load());
  return status != 0 ? status : (wrong == 0 && seen >= 2 ? 0 : 4);
}

// ---- Descriptors ---------------------------------------------------------------------------

int look_at_descriptors() {
  const std::set<int> before = numbers_in("/proc/self/fd");
  std::atomic<int> open{0}, leaked{0};
  const int status = run_job(2, [&](Communicator& comm) {
    SharedBuffer<float> buffer(comm, 100'000);
    use_everything(comm);
    comm.all_reduce(buffer, buffer, ops::sum);
    comm.barrier();
    if (comm.rank() == 0) {
      for (const int fd : difference(numbers_in("/proc/self/fd"), before)) {
        const int flags = fcntl(fd, F_GETFD);
        if (flags < 0) continue;  // the folder that was listed
        ++open;
        if ((flags & FD_CLOEXEC) != 0) continue;
        char target[100] = {};
        const std::string link = "/proc/self/fd/" + std::to_string(fd);
        static_cast<void>(!readlink(link.c_str(), target, sizeof target - 1));
        std::printf("descriptor %d (%s) would leak into programs\n", fd, target);
        ++leaked;
      }
    }
    comm.barrier();
  });
  std::printf("%d descriptors\n", open.load());
  return status != 0 ? status : (leaked == 0 && open > 2 ? 0 : 4);
}

// Thirty-two ranks in one process, of which each could hold a descriptor of each other's memory.
int crowd() {
  const rlimit usual{1024, 1024};
  if (setrlimit(RLIMIT_NOFILE, &usual) != 0) return 2;
  std::atomic<std::size_t> open{0};
  const int status = run_job(32, [&](Communicator& comm) {
    float one = 1;
    comm.all_reduce(&one, &one, 1, DataType::kFloat32, ops::sum);
    if (one != 32) throw std::runtime_error("a wrong sum");
    // Descriptors of heaps are used at the first large call.
    SharedBuffer<float> buffer(comm, 20'000);
    std::fill(buffer.begin(), buffer.end(), 1.0F);
    comm.all_reduce(buffer, buffer, ops::sum);
    if (buffer[19'999] != 32) throw std::runtime_error("a wrong sum of shared memory");
    if (comm.rank() == 0) open = numbers_in("/proc/self/fd").size();
    comm.barrier();
  });
  std::printf("open: %zu\n", open.load());
  return status;
}

// From enough for two ranks down to fewer than any job needs. The deadline is short because a rank
// that finds no descriptor waits for one.
int starve() {
  const std::size_t used = numbers_in("/proc/self/fd").size() - 1;
  int failures = 0;
  for (rlim_t spare = 40; spare >= 4; spare -= 4) {
    const rlimit tight{used + spare, 1024};
    if (setrlimit(RLIMIT_NOFILE, &tight) != 0) return 2;
    const int status = run_job(
        2, [](Communicator& comm) { comm.barrier(); }, std::chrono::milliseconds(200));
    if (status != 0) ++failures;
    std::printf("with %ju to spare: %d\n", static_cast<std::uintmax_t>(spare), status);
  }
  std::printf("failures: %d\n", failures);
  return failures > 0 ? 0 : 4;
}

// ---- The end of the parent -----------------------------------------------------------------

// Of the ranks one computes, one waits for it in a collective and one is in a call of its own. None
// of them notices anything by itself: the deadline is far away.
int spawn_processes_for_ever() {
  spawn(3,
        [](Communicator& comm) {
          comm.barrier();
          std::printf("rank %d is up\n", comm.rank());
          std::fflush(stdout);
          if (comm.rank() == 0) {
            for (volatile bool on = true; on;) continue;
          }
          if (comm.rank() == 2) {
            sigset_t all;
            sigfillset(&all);
            sigprocmask(SIG_SETMASK, &all, nullptr);
            for (;;) pause();
          }
          comm.barrier();
        },
        {.as = SpawnOptions::As::kProcesses,
         .transport = transport_of_role(),
         .timeout = std::chrono::hours(1)});
  return 0;
}

const RoleEntry signals_entry("look_at_signal_masks", &look_at_signal_masks);
const RoleEntry descriptors_entry("look_at_descriptors", &look_at_descriptors);
const RoleEntry crowd_entry("crowd", &crowd);
const RoleEntry starve_entry("starve", &starve);
const RoleEntry parent_entry("spawn_processes_for_ever", &spawn_processes_for_ever);

// ---- Tests ---------------------------------------------------------------------------------

class HostProcess : public testing::TestWithParam<const char*> {
 protected:
  std::vector<std::string> environment() const {
    return {std::string("UNISONO_TRANSPORT=") + GetParam()};
  }
};

TEST_P(HostProcess, KeepsItsSignalsToItsOwnThreads) {
  ChildProcess child("look_at_signal_masks", environment());
  EXPECT_EQ(child.wait(), 0) << child.output();
}

TEST_P(HostProcess, HandsNoDescriptorOfTheJobToProgramsItStarts) {
  ChildProcess child("look_at_descriptors", environment());
  EXPECT_EQ(child.wait(), 0) << child.output();
}

TEST_P(HostProcess, TakesItsSpawnedRanksWithItWhenItIsKilled) {
  ChildProcess child("spawn_processes_for_ever", environment());
  for (const char* rank : {"rank 0", "rank 1", "rank 2"}) {
    ASSERT_TRUE(child.prints(rank)) << child.output();
  }
  child.kill(SIGKILL);
  // Its output ends when the last rank has.
  EXPECT_EQ(child.wait(), 1000 + SIGKILL) << "ranks outlived the process that spawned them";
}

INSTANTIATE_TEST_SUITE_P(Transports, HostProcess, testing::Values("auto", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

class DescriptorLimit : public testing::TestWithParam<const char*> {};

TEST_P(DescriptorLimit, LeavesThirtyTwoThreadsTheirSharedMemory) {
  ChildProcess child("crowd", {std::string("UNISONO_TRANSPORT=") + GetParam()});
  EXPECT_EQ(child.wait(), 0) << child.output();
  EXPECT_THAT(child.output(), Not(HasSubstr("shared memory is not used")));
}

INSTANTIATE_TEST_SUITE_P(Transports, DescriptorLimit, testing::Values("auto", "shm"),
                         [](const auto& info) { return std::string(info.param); });

class LowDescriptorLimit : public testing::TestWithParam<const char*> {};

TEST_P(LowDescriptorLimit, IsNamedWithTheRemedy) {
  // Before it looks at an object's type it asks the kernel, through a pipe, for readable memory.
  if (is_sanitized() && !is_thread_sanitized()) {
    GTEST_SKIP() << "the sanitizer of undefined behaviour needs descriptors itself";
  }
  ChildProcess child("starve", {std::string("UNISONO_TRANSPORT=") + GetParam()});
  EXPECT_EQ(child.wait(), 0) << child.output();
  EXPECT_THAT(child.output(), HasSubstr("this process may have"));
  EXPECT_THAT(child.output(), HasSubstr("ulimit -n"));
}

INSTANTIATE_TEST_SUITE_P(Transports, LowDescriptorLimit, testing::Values("shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace unisono::test
