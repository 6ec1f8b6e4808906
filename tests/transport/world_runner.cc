// Starting and joining the ranks of a case; see world_runner.h.
#include "tests/transport/world_runner.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include "tests/support/seed.h"

extern char** environ;

namespace unisono::test {
namespace {

constexpr const char* kRoleFlag = "--conformance-rank";
constexpr auto kProcessTimeout = std::chrono::seconds(90);

void run_rank(const TransportKind& kind, const ConformanceCase& conformance_case,
              SharedWorld& world, Rank rank) {
  auto transport = make_transport(kind.name, world, rank);
  if (!transport) {
    ADD_FAILURE() << "rank " << rank << ": " << transport.error().message();
    return;
  }
  Seat seat(std::move(*transport), world, rank);
  conformance_case.body(seat);
}

pid_t start_rank(const TransportKind& kind, const ConformanceCase& conformance_case,
                 const SharedWorld& world, Rank rank) {
  const std::string arguments[] = {"conformance_rank",
                                   kRoleFlag,
                                   kind.name,
                                   conformance_case.claim,
                                   std::to_string(rank),
                                   std::to_string(world.fd()),
                                   "--gtest_random_seed=" + std::to_string(seed())};
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, argv.data(), environ);
  EXPECT_EQ(error, 0) << std::strerror(error);
  return error == 0 ? pid : -1;
}

/// The exit status of a child that ends before `deadline`; otherwise it is killed.
int join_rank(pid_t pid, TimePoint deadline) {
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (Clock::now() > deadline) {
      kill(pid, SIGKILL);
      waitpid(pid, &status, 0);
      ADD_FAILURE() << "a rank did not end and was killed";
      break;
    }
    const timespec millisecond = {0, 1000000};
    nanosleep(&millisecond, nullptr);
  }
  return status;
}

}  // namespace

void run_as_threads(const TransportKind& kind, const ConformanceCase& conformance_case) {
  SharedWorld world = SharedWorld::create(conformance_case.ranks, kind.ring_bytes);
  std::vector<std::thread> ranks;
  for (Rank rank = 0; rank < conformance_case.ranks; ++rank) {
    ranks.emplace_back([&, rank] { run_rank(kind, conformance_case, world, rank); });
  }
  for (std::thread& rank : ranks) rank.join();
}

void run_as_processes(const TransportKind& kind, const ConformanceCase& conformance_case) {
  SharedWorld world = SharedWorld::create(conformance_case.ranks, kind.ring_bytes);
  std::vector<pid_t> ranks;
  for (Rank rank = 0; rank < conformance_case.ranks; ++rank) {
    ranks.push_back(start_rank(kind, conformance_case, world, rank));
    if (ranks.back() < 0) world.fail();
  }
  const TimePoint deadline = Clock::now() + kProcessTimeout;
  for (Rank rank = 0; rank < conformance_case.ranks; ++rank) {
    const pid_t pid = ranks[static_cast<std::size_t>(rank)];
    if (pid < 0) continue;
    const int status = join_rank(pid, deadline);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << "rank " << rank << " ended with status " << status << "; its output is above";
  }
}

bool run_role(int argc, char** argv, int* exit_code) {
  if (argc < 6 || std::strcmp(argv[1], kRoleFlag) != 0) return false;
  const TransportKind& kind = transport_kind(argv[2]);
  const ConformanceCase* conformance_case = find_case(argv[3]);
  *exit_code = 1;
  if (conformance_case == nullptr) return true;
  SharedWorld world =
      SharedWorld::inherit(std::atoi(argv[5]), conformance_case->ranks, kind.ring_bytes);
  run_rank(kind, *conformance_case, world, std::atoi(argv[4]));
  // Expectations outside of a test are kept apart by GoogleTest.
  const bool failed = testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed();
  *exit_code = failed ? 1 : 0;
  return true;
}

}  // namespace unisono::test
