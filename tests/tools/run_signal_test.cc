// Signals to the launcher reach every rank and everything in its group.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <utility>

#include "launcher.h"

namespace unisono::run {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A rank that says which signal it got, and ends with a status of its own.
std::string reporter(const std::string& name) {
  return "trap 'echo got-" + name + "-$RANK; exit 0' " + name +
         "; echo ready-$RANK; while :; do sleep 0.01; done";
}

TEST(RunSignal, ForwardsEverySignalToAllRanks) {
  const std::pair<int, const char*> signals[] = {{SIGTERM, "TERM"}, {SIGINT, "INT"},
                                                 {SIGHUP, "HUP"},   {SIGQUIT, "QUIT"},
                                                 {SIGUSR1, "USR1"}, {SIGUSR2, "USR2"}};
  for (const auto& [signal, name] : signals) {
    Launcher launcher(shell({"-n", "2"}, reporter(name)));
    ASSERT_TRUE(launcher.prints("ready-0") && launcher.prints("ready-1"));
    launcher.signal(signal);
    EXPECT_EQ(launcher.wait(), 0) << launcher.err();
    EXPECT_THAT(launcher.out(), AllOf(HasSubstr(std::string("got-") + name + "-0"),
                                      HasSubstr(std::string("got-") + name + "-1")));
  }
}

TEST(RunSignal, StatusTellsTheForwardedSignal) {
  Launcher launcher(shell({"-n", "2"}, "echo ready-$RANK; exec sleep 1000"));
  ASSERT_TRUE(launcher.prints("ready-0") && launcher.prints("ready-1"));
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.wait(), 128 + SIGTERM);
}

TEST(RunSignal, ASecondInterruptKillsAtOnce) {
  // Grace and report time are longer than the test's patience: only the second signal can end it.
  Launcher launcher(shell({"-n", "2", "--timeout-report", "1000", "--grace", "1000"},
                          "trap '' INT TERM; echo ready-$RANK; while :; do sleep 0.01; done"));
  ASSERT_TRUE(launcher.prints("ready-0") && launcher.prints("ready-1"));
  launcher.signal(SIGINT);
  ASSERT_TRUE(launcher.complains("press Ctrl-C again"));
  launcher.signal(SIGINT);
  EXPECT_EQ(launcher.wait(), 128 + SIGINT);
}

TEST(RunSignal, CtrlCOnATerminalEndsTheJob) {
  LaunchOptions options;
  options.terminal = true;
  Launcher launcher(shell({"-n", "2"}, reporter("INT")), options);
  ASSERT_TRUE(launcher.prints("ready-0") && launcher.prints("ready-1"));
  launcher.type("\x03");
  EXPECT_EQ(launcher.wait(), 0) << launcher.out();
  EXPECT_THAT(launcher.out(), AllOf(HasSubstr("got-INT-0"), HasSubstr("got-INT-1")));
}

TEST(RunSignal, AStoppedReaderDoesNotStopForwarding) {
  // Nobody reads: the launcher's own output is full and stays full, and ranks write on and on.
  Launcher launcher(shell({"-n", "2"}, "echo rank-$RANK=$$; exec yes"));
  ASSERT_TRUE(launcher.prints("rank-0=") && launcher.prints("rank-1="));
  ASSERT_TRUE(eventually([&] { return launcher.unread_output_bytes() >= 60'000; }));
  launcher.signal(SIGTERM);
  for (const char* name : {"rank-0=", "rank-1="}) {
    const pid_t rank = number_after(launcher.out(), name);
    ASSERT_GT(rank, 0);
    EXPECT_TRUE(eventually([&] { return !is_alive(rank); }));
  }
  EXPECT_EQ(launcher.wait(), 128 + SIGTERM);
}

TEST(RunSignal, AReaderThatNeverReadsDoesNotKeepTheLauncher) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    Launcher launcher(shell({"-n", "2"}, "echo rank-$RANK=$$; exec yes"));
    ASSERT_TRUE(launcher.prints("rank-0=") && launcher.prints("rank-1="));
    ASSERT_TRUE(eventually([&] { return launcher.unread_output_bytes() >= 60'000; }));
    launcher.signal(signal);
    EXPECT_EQ(launcher.wait_unread(), 128 + signal);
    EXPECT_TRUE(launcher.complains("of output; dropped"));
  }
}

TEST(RunSignal, ASignalAfterTheLastRankEndsTheWaitForAReader) {
  // More than the pipe takes, and the ranks have ended by themselves: only the reader is missing.
  Launcher launcher(shell({"-n", "1"}, "echo rank-0=$$; head -c 300000 /dev/zero | tr '\\0' x"));
  ASSERT_TRUE(launcher.prints("rank-0="));
  const pid_t rank = number_after(launcher.out(), "rank-0=");
  ASSERT_TRUE(eventually([&] { return !is_alive(rank); }));
  ASSERT_TRUE(is_alive(launcher.pid()));
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.wait_unread(), 1) << "the output is not complete";
}

TEST(RunSignal, RanksThatIgnoreTermAndHupAreKilled) {
  for (const int signal : {SIGTERM, SIGHUP}) {
    Launcher launcher(shell({"-n", "2", "--timeout-report", "0.1", "--grace", "0.1"},
                            "trap '' TERM HUP; echo rank-$RANK=$$; while :; do sleep 0.01; done"));
    ASSERT_TRUE(launcher.prints("rank-0=") && launcher.prints("rank-1="));
    launcher.signal(signal);
    EXPECT_EQ(launcher.wait(), 128 + SIGTERM);
    EXPECT_THAT(launcher.err(), HasSubstr("sending SIGKILL to ranks 0, 1"));
    for (const char* name : {"rank-0=", "rank-1="}) {
      EXPECT_FALSE(is_alive(number_after(launcher.out(), name)));
    }
  }
}

TEST(RunSignal, RanksThatFollowTermEndWellWhateverTheyLeaveRunning) {
  Launcher launcher(shell({"-n", "2", "--timeout-report", "1000", "--grace", "0.1"},
                          "(trap '' TERM; while :; do sleep 0.01; done) &"
                          "trap 'exit 0' TERM; echo ready-$RANK; while :; do sleep 0.01; done"));
  ASSERT_TRUE(launcher.prints("ready-0") && launcher.prints("ready-1"));
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.wait(), 0) << launcher.err();
  EXPECT_THAT(launcher.err(), HasSubstr("left processes running"));
}

TEST(RunSignal, ATerminalThatTakesNothingDoesNotKeepTheLauncher) {
  LaunchOptions options;
  options.terminal = true;
  Launcher launcher(shell({"-n", "2"}, "echo ready-$RANK; exec yes"), options);
  ASSERT_TRUE(launcher.prints("ready-0") && launcher.prints("ready-1"));
  int before = -1;
  // Full when what waits to be read no longer grows.
  ASSERT_TRUE(eventually([&] {
    const int now = launcher.unread_output_bytes();
    return std::exchange(before, now) == now && now >= 1000;
  }));
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.wait_unread(), 128 + SIGTERM);
}

TEST(RunSignal, ASecondTermDoesNotGiveMoreTime) {
  Launcher launcher(shell({"-n", "1", "--timeout-report", "0.5", "--grace", "0.1"},
                          "trap '' TERM; echo ready-0; while :; do sleep 0.01; done"));
  ASSERT_TRUE(launcher.prints("ready-0"));
  // Sent faster than the report time passes, for as long as it lives.
  EXPECT_TRUE(eventually([&] {
    launcher.signal(SIGTERM);
    return !is_alive(launcher.pid());
  }));
  EXPECT_EQ(launcher.wait(), 128 + SIGTERM);
}

TEST(RunSignal, StoppedRanksEndToo) {
  Launcher launcher(shell({"-n", "2", "--timeout-report", "0.1", "--grace", "1000"},
                          "echo rank-$RANK=$$; kill -STOP $$; while :; do sleep 0.01; done"));
  for (const char* name : {"rank-0=", "rank-1="}) ASSERT_TRUE(launcher.prints(name));
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.wait(), 128 + SIGTERM);
}

}  // namespace
}  // namespace unisono::run
