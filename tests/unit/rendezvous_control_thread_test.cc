// The thread that serves the control connections of a process: when there is one, and what a forked
// child has of it.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/sanitizers.h"
#include "rendezvous_support.h"

namespace unisono::rendezvous {
namespace {

std::size_t control_threads() {
  std::size_t count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    if (name == "unisono-control") ++count;
  }
  return count;
}

TEST(ControlThread, IsOneForAllRanksOfAProcessAndEndsWithTheLast) {
  EXPECT_EQ(control_threads(), 0u);
  auto outcomes = meet(world_of(abstract_point(), 3));
  expect_one_world(outcomes);
  auto others = meet(world_of(abstract_point(), 2));
  expect_one_world(others);
  EXPECT_TRUE(eventually([] { return control_threads() == 1; }));  // its name is its first deed
  leave_all(&outcomes);
  EXPECT_EQ(control_threads(), 1u);
  leave_all(&others);
  EXPECT_TRUE(eventually([] { return control_threads() == 0; }));
}

TEST(ControlThread, IsNotMadeForAWorldOfOne) {
  auto outcomes = meet(world_of(RendezvousPoint(), 1));
  expect_one_world(outcomes);
  EXPECT_EQ(control_threads(), 0u);
}

// Whether all is well in a child that was forked in the middle of a job.
bool meets_anew() {
  if (control_threads() != 0) return false;
  auto outcomes = meet(world_of(abstract_point(), 2));
  outcomes[0].client->report_failure({ErrorCode::kAborted, -1, 0, 0, "of the child"});
  const bool heard = await_decision(outcomes[1].client.get()).message == "of the child";
  leave_all(&outcomes);
  return heard;
}

TEST(ControlThread, OfAForkedChildIsItsOwn) {
  if (UNISONO_THREAD_SANITIZER == 1) GTEST_SKIP() << "no threads in children of threads there";
  auto outcomes = meet(world_of(abstract_point(), 2));
  expect_one_world(outcomes);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(meets_anew() ? 0 : 1);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  outcomes[0].client->report_failure({ErrorCode::kAborted, -1, 0, 0, "of the parent"});
  EXPECT_EQ(await_decision(outcomes[1].client.get()).message, "of the parent");
  leave_all(&outcomes);
}

// Among the descriptors that a program like this one has at all.
int open_sockets() {
  int sockets = 0;
  for (int fd = 0; fd < 256; ++fd) {
    struct stat facts {};
    sockets += ::fstat(fd, &facts) == 0 && S_ISSOCK(facts.st_mode) ? 1 : 0;
  }
  return sockets;
}

int sockets_of_a_child() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(open_sockets());
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WEXITSTATUS(status);
}

// However the fork falls: while ranks connect, are accepted, or leave.
TEST(ForkedChildren, HaveNoSocketOfTheJob) {
  constexpr int kChildrenMin = 100;
  constexpr int kMeetingsMin = 10;
  const int others = sockets_of_a_child();
  std::atomic<int> meetings{0};
  std::atomic<bool> enough{false};
  std::thread ranks([&] {
    do {
      auto outcomes = meet(world_of(abstract_point(), 3));
      leave_all(&outcomes);
      ++meetings;
    } while (!enough);
  });
  int children = 0, with_sockets = 0;
  for (; children < kChildrenMin || meetings < kMeetingsMin; ++children) {
    with_sockets += sockets_of_a_child() > others ? 1 : 0;
  }
  enough = true;
  ranks.join();
  EXPECT_EQ(with_sockets, 0) << "of " << children << " children";
}

}  // namespace
}  // namespace unisono::rendezvous
