// How a job ends: exit status, grace, killing, and that nothing is left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>

#include "launcher.h"
#include "tests/support/temporary_folder.h"

namespace unisono::run {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(RunFailure, EndsTheOthersAndNamesTheRank) {
  Launcher launcher(shell({"-n", "3", "--timeout-report", "0.1"},
                          "if [ $RANK = 1 ]; then exit 7; fi;"
                          "trap 'exit 9' TERM; while :; do sleep 0.01; done"));
  EXPECT_EQ(launcher.wait(), 7);
  EXPECT_THAT(launcher.err(), AllOf(HasSubstr("rank 1 (pid "), HasSubstr("exited with status 7"),
                                    HasSubstr("sending SIGTERM to ranks 0, 2")));
}

TEST(RunFailure, NamesARankThatEndedWellAndThatTheOthersWaitedFor) {
  Launcher launcher(shell({"-n", "3"}, "if [ $RANK = 1 ]; then exit 0; fi; exec " UNISONO_COMMAND
                                       " perf barrier -I 1"),
                    {.environment = {"UNISONO_TIMEOUT=1s"}});
  EXPECT_EQ(launcher.wait(), 1);
  EXPECT_THAT(
      launcher.err(),
      ContainsRegex("rank 1 \\(pid [0-9]+\\) ended with status 0 and left no record of a job; the "
                    "others may have waited for it"));
}

TEST(RunFailure, SurvivorsReportAndEndByThemselves) {
  // Rank 1's number disappears when the launcher has seen its end; only then does rank 0 fail too.
  const test::TemporaryFolder folder;
  Launcher launcher(shell({"-n", "2", "--timeout-report", "1000"},
                          "cd " + folder.path() +
                              "; if [ $RANK = 1 ]; then echo $$ > new; mv new pid; exit 3; fi;"
                              "while [ ! -e pid ]; do sleep 0.01; done;"
                              "while kill -0 $(cat pid) 2>/dev/null; do sleep 0.01; done;"
                              "echo rank 1 has left me; exit 4"));
  EXPECT_EQ(launcher.wait(), 3);
  EXPECT_THAT(launcher.out(), HasSubstr("[0] rank 1 has left me"));
  EXPECT_THAT(launcher.err(), AllOf(HasSubstr("first failure: rank 1"), Not(HasSubstr("SIGTERM"))));
}

TEST(RunFailure, StatusOfASignalIs128PlusItsNumber) {
  Launcher launcher(shell({"-n", "2", "--timeout-report", "0"},
                          "if [ $RANK = 1 ]; then kill -KILL $$; fi; exec sleep 1000"));
  EXPECT_EQ(launcher.wait(), 128 + SIGKILL);
  EXPECT_THAT(launcher.err(), AllOf(HasSubstr("rank 1 (pid "), HasSubstr("SIGKILL")));
}

TEST(RunFailure, KillsARankThatIgnoresSigterm) {
  const test::TemporaryFolder folder;
  Launcher launcher(
      shell({"-n", "2", "--timeout-report", "0.1", "--grace", "0.1"},
            "cd " + folder.path() +
                "; if [ $RANK = 1 ]; then"
                "  while [ ! -e deaf ]; do sleep 0.01; done; exit 5; fi;"
                "trap '' TERM; echo pid=$$; touch deaf; while :; do sleep 0.01; done"));
  EXPECT_EQ(launcher.wait(), 5);
  EXPECT_THAT(launcher.err(), HasSubstr("sending SIGKILL to rank 0"));
  const pid_t stubborn = number_after(launcher.out(), "pid=");
  ASSERT_GT(stubborn, 0);
  EXPECT_FALSE(is_alive(stubborn));
}

TEST(RunFailure, AStoppedRankDoesNotOutliveTheOthers) {
  const test::TemporaryFolder folder;
  // SIGKILL is out of reach: SIGTERM alone must do, which a stopped process gets only once it runs.
  Launcher launcher(shell({"-n", "2", "--timeout-report", "0.1", "--grace", "1000"},
                          "cd " + folder.path() +
                              "; if [ $RANK = 0 ]; then"
                              "  while [ ! -e stopped ]; do sleep 0.01; done; exit 5; fi;"
                              "echo pid=$$; kill -STOP $$; while :; do sleep 0.01; done"));
  ASSERT_TRUE(launcher.prints("pid="));
  const pid_t stopped = number_after(launcher.out(), "pid=");
  ASSERT_TRUE(eventually([&] { return is_stopped(stopped); }));
  std::ofstream(folder.path() + "/stopped") << "yes";
  EXPECT_EQ(launcher.wait(), 5);
  EXPECT_FALSE(is_alive(stopped));
}

TEST(RunFailure, KeepGoingEndsNobody) {
  Launcher launcher(shell({"-n", "3", "--keep-going", "--timeout-report", "0", "--grace", "0"},
                          "if [ $RANK = 1 ]; then exit 6; fi;"
                          "i=0; while [ $i -lt 20 ]; do sleep 0.01; i=$((i+1)); done; echo done"));
  EXPECT_EQ(launcher.wait(), 6);
  EXPECT_THAT(launcher.out(), AllOf(HasSubstr("[0] done"), HasSubstr("[2] done")));
}

TEST(RunFailure, EndsWhatRanksLeftRunning) {
  Launcher launcher(shell({"-n", "1", "--grace", "0.1"},
                          "(trap '' TERM; while :; do sleep 0.01; done) & echo pid=$!"));
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_THAT(launcher.err(), HasSubstr("left processes running"));
  const pid_t left = number_after(launcher.out(), "pid=");
  ASSERT_GT(left, 0);
  EXPECT_FALSE(is_alive(left));
}

TEST(RunFailure, DoesNotWaitForAProcessThatLeftTheJob) {
  // setsid leaves the rank's group but keeps its standard output open.
  Launcher launcher(shell({"-n", "1"}, "setsid sleep 1000 & echo pid=$!"));
  EXPECT_EQ(launcher.wait(), 0);
  const pid_t left = number_after(launcher.out(), "pid=");
  ASSERT_GT(left, 0);
  ::kill(left, SIGKILL);
}

TEST(RunFailure, NoticesWhenTheLastProcessLeavesTheGroup) {
  // No process ends when it leaves, so nothing tells the launcher.
  Launcher launcher(
      shell({"-n", "1", "--grace", "1000"}, "(sleep 0.1; exec setsid sleep 1000) & echo pid=$!"));
  EXPECT_EQ(launcher.wait(), 0);
  const pid_t left = number_after(launcher.out(), "pid=");
  ASSERT_GT(left, 0);
  ::kill(left, SIGKILL);
}

TEST(RunFailure, CommandNotFoundIs127AndNamed) {
  Launcher launcher({"-n", "3", "no-such-command-anywhere"});
  EXPECT_EQ(launcher.wait(), 127);
  EXPECT_THAT(launcher.err(), HasSubstr("command not found: no-such-command-anywhere"));
  Launcher by_path({"/no/such/path"});
  EXPECT_EQ(by_path.wait(), 127);
  EXPECT_THAT(by_path.err(), HasSubstr("/no/such/path"));
  Launcher folder({"/tmp"});
  EXPECT_EQ(folder.wait(), 126);
  EXPECT_THAT(folder.err(), HasSubstr("cannot run /tmp"));
}

// Ranks print their own process and that of a grandchild in their group.
const char* const kFamily =
    "(sh -c 'while :; do sleep 0.05; done' & echo \"grandchild-$RANK=$!\"); echo "
    "\"leader-$RANK=$$\";"
    "trap '' TERM INT HUP; echo ready-$RANK; while :; do sleep 0.05; done";

std::vector<pid_t> family_of(Launcher& launcher, int size) {
  std::vector<pid_t> family;
  for (int rank = 0; rank < size; ++rank) {
    const std::string number = std::to_string(rank);
    EXPECT_TRUE(launcher.prints("ready-" + number));
    family.push_back(number_after(launcher.out(), "leader-" + number + "="));
    family.push_back(number_after(launcher.out(), "grandchild-" + number + "="));
  }
  for (const pid_t pid : family) EXPECT_TRUE(pid > 0 && is_alive(pid)) << pid;
  return family;
}

// The guard is the launcher's child with a session of its own; its name is set for ps.
pid_t child_called_guard(pid_t launcher) {
  for (const pid_t child : children_of(launcher)) {
    std::string name;
    std::getline(std::ifstream("/proc/" + std::to_string(child) + "/comm") >> std::ws, name);
    if (name == "unisono-guard") return child;
  }
  return 0;
}

// 0 where there is none. It may take its name after the ranks have spoken.
pid_t guard_of(pid_t launcher) {
  pid_t guard = 0;
  static_cast<void>(eventually([&] { return (guard = child_called_guard(launcher)) > 0; }));
  return guard;
}

TEST(RunFailure, AKilledLauncherLeavesNoProcess) {
  Launcher launcher(shell({"-n", "3"}, kFamily));
  const std::vector<pid_t> family = family_of(launcher, 3);
  const pid_t guard = guard_of(launcher.pid());
  ASSERT_GT(guard, 0);
  launcher.signal(SIGKILL);
  for (const pid_t pid : family) {
    EXPECT_TRUE(eventually([&] { return !is_alive(pid); })) << pid;
  }
  EXPECT_TRUE(eventually([&] { return !is_alive(guard); }));
  EXPECT_EQ(launcher.wait(), 1000 + SIGKILL);
}

TEST(RunFailure, TheGuardSurvivesSignalsMeantForTheJob) {
  Launcher launcher(shell({"-n", "1"}, kFamily));
  const std::vector<pid_t> family = family_of(launcher, 1);
  const pid_t guard = guard_of(launcher.pid());
  ASSERT_GT(guard, 0);
  EXPECT_EQ(::getsid(guard), guard);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::kill(guard, signal);
  launcher.signal(SIGKILL);
  for (const pid_t pid : family) {
    EXPECT_TRUE(eventually([&] { return !is_alive(pid); })) << pid;
  }
}

TEST(RunFailure, TheGuardEndsWithTheLauncher) {
  Launcher launcher(
      shell({"-n", "2"}, "echo up-$RANK; trap 'exit 0' USR1; while :; do sleep 0.01; done"));
  ASSERT_TRUE(launcher.prints("up-0") && launcher.prints("up-1"));
  const pid_t guard = guard_of(launcher.pid());
  ASSERT_GT(guard, 0);
  // A rank may not have set its trap when its line arrives.
  EXPECT_TRUE(eventually([&] {
    launcher.signal(SIGUSR1);
    return !is_alive(launcher.pid());
  }));
  launcher.wait();
  EXPECT_FALSE(is_alive(guard));
}

}  // namespace
}  // namespace unisono::run
