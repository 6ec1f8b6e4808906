// Ranks that are started again: the failed one, which rejoins the others, or everyone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>

#include "launcher.h"
#include "shell.h"
#include "tests/support/temporary_folder.h"

namespace unisono::run {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> ranks(int count, int restarts) {
  return {
      "-n",  std::to_string(count), "--max-restarts", std::to_string(restarts), "--timeout-report",
      "0.1", UNISONO_REJOINING_RANK};
}

TEST(RunRestart, AFailedRankRejoinsTheOthers) {
  Launcher launcher(ranks(4, 1), {.environment = {"VICTIMS=2"}});
  EXPECT_EQ(launcher.wait(), 0) << launcher.err() << launcher.out();
  EXPECT_THAT(launcher.sorted_lines(), ElementsAre("[0] together after 1", "[1] together after 1",
                                                   "[2] together after 1", "[3] together after 1"));
  EXPECT_THAT(launcher.err(), AllOf(HasSubstr("was ended by SIGKILL; starting rank 2 again (1 of 1 "
                                              "restart)"),
                                    Not(HasSubstr("sending"))));
}

TEST(RunRestart, AnyRankMayFailAnyNumberOfTimes) {
  Launcher launcher(ranks(3, 5), {.environment = {"VICTIMS=0,0,2,1,0"}});
  EXPECT_EQ(launcher.wait(), 0) << launcher.err() << launcher.out();
  EXPECT_THAT(launcher.out(), HasSubstr("[0] together after 5"));
}

// Nobody can let it in before: all others wait for it in init().
TEST(RunRestart, OfARankThatHasNotMetTheOthersIsOneOfAll) {
  for (const char* rank : {"0", "1", "2"}) {
    Launcher launcher(ranks(3, 1), {.environment = {"DIES_ALONE=" + std::string(rank)}});
    EXPECT_EQ(launcher.wait(), 0) << launcher.err() << launcher.out();
    EXPECT_THAT(launcher.err(),
                HasSubstr("exited with status 7; starting all ranks again, as they have not met "
                          "yet (1 of 1 restart)"));
    EXPECT_THAT(launcher.sorted_lines(), ElementsAre("[0] together after 1", "[1] together after 1",
                                                     "[2] together after 1"));
  }
}

// Two of them have met before, which is not all.
TEST(RunRestart, OfARankThatOnlySomeHaveMetIsOneOfAll) {
  Launcher launcher(shell({"-n", "3", "--max-restarts", "1", "--timeout-report", "0.1"},
                          "[ $RANK = 2 ] || ONLY_MEETS_SOME=2 " UNISONO_REJOINING_RANK
                          "; DIES_ALONE=2 exec " UNISONO_REJOINING_RANK));
  EXPECT_EQ(launcher.wait(), 0) << launcher.err() << launcher.out();
  EXPECT_THAT(launcher.err(), HasSubstr("starting all ranks again, as they have not met yet"));
}

TEST(RunRestart, EndsTheJobOnceNoneIsLeft) {
  Launcher launcher(ranks(3, 1), {.environment = {"VICTIMS=1,2"}});
  EXPECT_EQ(launcher.wait(), 128 + 9);
  EXPECT_THAT(launcher.err(), HasSubstr("starting rank 1 again (1 of 1"));
}

// Both are due at once, since the launcher looks when both have ended.
TEST(RunRestart, StartsNoOtherRankWhereOneCannotBeStarted) {
  const test::TemporaryFolder folder;
  const std::string program = folder / "program";
  std::ofstream(program) << "#!/bin/sh\n"
                         << kMeet << "echo pid$RANK=$$ end$RANK\nexec sleep 1000\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  Launcher launcher({"-n", "3", "--max-restarts", "5", "--timeout-report", "0.1", program});
  for (const char* end : {"end0", "end1", "end2"}) {
    ASSERT_TRUE(launcher.prints(end)) << launcher.err();
  }
  launcher.signal(SIGSTOP);
  ASSERT_TRUE(eventually([&] { return is_stopped(launcher.pid()); }));
  std::filesystem::remove(program);
  for (const char* rank : {"pid0=", "pid1="}) {
    const pid_t pid = number_after(launcher.out(), rank);
    ::kill(pid, SIGKILL);
    ASSERT_TRUE(eventually([&] { return !is_alive(pid); }));
  }
  launcher.signal(SIGCONT);
  EXPECT_NE(launcher.wait(), 0);
  const std::string& said = launcher.err();
  EXPECT_THAT(said, AllOf(HasSubstr("rank 0 again"), HasSubstr("rank 1 again"))) << said;
  const std::string cannot = ": command not found: " + program;
  EXPECT_THAT(said, HasSubstr(cannot));
  EXPECT_EQ(said.find(cannot), said.rfind(cannot)) << said;
}

// Nobody is left that it could rejoin.
TEST(RunRestart, OfARankAloneIsANewStart) {
  Launcher launcher(shell({"-n", "1", "--max-restarts", "2"},
                          "echo $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS;"
                          "echo rejoin=$UNISONO_REJOIN; test $TORCHELASTIC_RESTART_COUNT = 2"));
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_THAT(launcher.out(), AllOf(HasSubstr("0 of 2"), HasSubstr("1 of 2"), HasSubstr("2 of 2"),
                                    Not(HasSubstr("rejoin=on"))));
}

TEST(RunRestart, OfAllIsAnotherPlaceAndName) {
  const std::string script =
      "echo $TORCHELASTIC_RESTART_COUNT port=$MASTER_PORT id=$TORCHELASTIC_RUN_ID "
      "store=$UNISONO_LAUNCHER_STORE.; [ $TORCHELASTIC_RESTART_COUNT = 0 ] || exit 0;"
      "[ $RANK = 1 ] && exit 7; trap 'exit 9' TERM; while :; do sleep 0.01; done";
  Launcher launcher(shell({"-n", "3", "--max-restarts", "1", "--restart", "all"}, script));
  EXPECT_EQ(launcher.wait(), 0) << launcher.err();
  EXPECT_THAT(launcher.err(), AllOf(HasSubstr("exited with status 7; starting all ranks again (1 "
                                              "of 1 restart)"),
                                    HasSubstr("sending SIGTERM to ranks 0, 2")));
  EXPECT_THAT(launcher.out(), AllOf(HasSubstr("[2] 1 port="), HasSubstr(".1 store=.")));
  const auto port_after = [&](const std::string& what) {
    const std::string& out = launcher.out();
    return number_after(out.substr(out.find(what)), "port=");
  };
  EXPECT_NE(port_after("[1] 0 port="), port_after("[1] 1 port="));
}

TEST(RunRestart, OfAllEndsWithTheStatusOfTheLastFailure) {
  Launcher launcher(
      shell({"-n", "2", "--max-restarts", "2", "--restart", "all", "--timeout-report", "0.1"},
            "[ $RANK = 0 ] && exit $((40 + TORCHELASTIC_RESTART_COUNT));"
            "while :; do sleep 0.01; done"));
  EXPECT_EQ(launcher.wait(), 42);
}

// All are to start again, and end, while the job fails of another cause.
TEST(RunRestart, OfAllIsNoneWhereOutputCannotBeWritten) {
  const test::ShellRun run = test::run_shell(
      UNISONO_COMMAND
      " run -n 2 --max-restarts 1 --restart all -- sh -c '"
      "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; [ $RANK = 0 ] && exit 3;"
      "trap \"echo bye; exit 0\" TERM; while :; do sleep 0.01; done' > /dev/full 2> /dev/full");
  EXPECT_EQ(run.status, 3);
}

// Ranks that do not rejoin end of the first failure: all begin anew once nobody is left to rejoin,
// and that is one failure.
TEST(RunRestart, BecomesOneOfAllWhereTheOthersFailToo) {
  const std::string script =
      "if [ \"$UNISONO_REJOIN\" = on ]; then while :; do sleep 0.01; done; fi;"
      "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; " +
      kMeet + "exit 5";
  Launcher launcher(shell({"-n", "4", "--max-restarts", "1", "--grace", "0.1"}, script));
  EXPECT_EQ(launcher.wait(), 0) << launcher.err();
  EXPECT_THAT(launcher.err(),
              HasSubstr("starting all ranks again, as none is left to rejoin (1 of 1 restart, "
                        "counted with the failure before)"));
}

// The others have done the work meanwhile.
TEST(RunRestart, DoesNotWaitForARankThatCameTooLate) {
  const test::TemporaryFolder folder;
  const std::string script = "cd " + folder.path() +
                             "; if [ \"$UNISONO_REJOIN\" = on ]; then touch again; exec " +
                             UNISONO_REJOINING_RANK + "; fi; " + kMeet +
                             "[ $RANK = 1 ] && exit 5; while [ ! -e again ]; do sleep 0.01; done";
  Launcher launcher(shell({"-n", "2", "--max-restarts", "9"}, script));
  EXPECT_EQ(launcher.wait(), 0) << launcher.err();
  EXPECT_THAT(launcher.err(), HasSubstr("ended before the ranks that were started again rejoined"));
}

// It never asks to rejoin, and has work of its own.
TEST(RunRestart, LetsARankThatWaitsForNobodyEndItsWork) {
  const test::TemporaryFolder folder;
  const std::string script =
      "cd " + folder.path() +
      "; if [ \"$UNISONO_REJOIN\" = on ]; then touch again; sleep 2; echo done; exit 0; fi; " +
      kMeet + "[ $RANK = 1 ] && exit 5; while [ ! -e again ]; do sleep 0.01; done";
  Launcher launcher(shell({"-n", "2", "--max-restarts", "1"}, script));
  EXPECT_EQ(launcher.wait(), 0) << launcher.err();
  EXPECT_THAT(launcher.out(), HasSubstr("[1] done"));
  EXPECT_THAT(launcher.err(), Not(HasSubstr("sending")));
}

TEST(RunRestart, GoesOnWithoutARankThatDiesWhileItWaits) {
  const test::TemporaryFolder folder;
  const std::string script = "cd " + folder.path() +
                             "; if [ \"$UNISONO_REJOIN\" = on ]; then echo $$ > new; mv new pid;" +
                             "DIES_WAITING=1 exec " + UNISONO_REJOINING_RANK + "; fi; " + kMeet +
                             "[ $RANK = 1 ] && exit 5; while [ ! -e pid ]; do sleep 0.01; done;"
                             "while kill -0 $(cat pid); do sleep 0.01; done 2>/dev/null; echo done";
  Launcher launcher(shell({"-n", "2", "--max-restarts", "1", "--timeout-report", "0.1"}, script));
  EXPECT_EQ(launcher.wait(), 0) << launcher.err();
  EXPECT_THAT(launcher.out(), HasSubstr("[0] done"));
  EXPECT_THAT(launcher.err(), HasSubstr("was ended by SIGKILL; the others go on without it"));
}

// The second life of rank 1 cannot take part: grow() fails then, which is no end of the others.
TEST(RunRestart, OfTheExampleLosesNobodyElseWhereANewcomerCannotCome) {
  Launcher launcher(
      shell({"-n", "3", "--max-restarts", "3", "--timeout-report", "0.1"},
            "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && "
            "export UNISONO_ALGORITHM=all_reduce=none; exec " UNISONO_RECOVERY_EXAMPLE));
  EXPECT_EQ(launcher.wait(), 0) << launcher.err();
  EXPECT_THAT(launcher.out(), AllOf(HasSubstr("[0] rank 0 of"), HasSubstr("[2] rank ")));
  EXPECT_THAT(launcher.err(), AllOf(HasSubstr("starting rank 1 again (1 of 3 restarts)"),
                                    Not(HasSubstr("all ranks")), Not(HasSubstr("starting rank 0")),
                                    Not(HasSubstr("starting rank 2"))));
}

TEST(RunRestart, DoesNotFollowASignalToEnd) {
  Launcher launcher(shell({"-n", "2", "--max-restarts", "9"}, "echo here; exec sleep 1000"));
  ASSERT_TRUE(launcher.prints("[0] here"));
  ASSERT_TRUE(launcher.prints("[1] here"));
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.wait(), 128 + SIGTERM);
  EXPECT_THAT(launcher.err(), Not(HasSubstr("starting")));
}

TEST(RunRestart, RefusesWhatItCannotDo) {
  const auto refusal = [](const std::vector<std::string>& flags) {
    Launcher launcher(shell(flags, "true"));
    EXPECT_EQ(launcher.wait(), 2);
    return launcher.err();
  };
  EXPECT_THAT(refusal({"--max-restarts", "-1"}), HasSubstr("--max-restarts"));
  EXPECT_THAT(refusal({"--max-restarts", "1", "--restart", "some"}),
              HasSubstr("--restart: 'some' is not failed or all"));
}

}  // namespace
}  // namespace unisono::run
