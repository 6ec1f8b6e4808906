// Launchers of several nodes that start ranks again, all on this machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>

#include <fstream>
#include <memory>

#include "launcher.h"
#include "rendezvous/sockets/sockets.h"
#include "tests/support/child_process.h"
#include "tests/support/temporary_folder.h"

namespace unisono::run {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

using Flags = std::vector<std::string>;

// What the launchers of one job are started with.
class Nodes {
 public:
  explicit Nodes(Flags flags, Flags environment = {})
      : flags_(std::move(flags)), environment_(std::move(environment)) {
    environment_.insert(environment_.begin(), {"UNISONO_JOB_KEY=0123456789abcdef0123456789abcdef",
                                               "UNISONO_TIMEOUT=20s"});
  }

  int port() const { return port_; }
  std::unique_ptr<Launcher> start(int node, const Flags& command, const Flags& more = {},
                                  const Flags& environment = {}) const {
    Flags line{"--nnodes",
               "2",
               "--node-rank",
               std::to_string(node),
               "-n",
               "2",
               "--master-port",
               std::to_string(port_),
               "--timeout-report",
               "0.1"};
    for (const Flags& part : {flags_, more, command})
      line.insert(line.end(), part.begin(), part.end());
    LaunchOptions options{.environment = environment_};
    options.environment.insert(options.environment.end(), environment.begin(), environment.end());
    return std::make_unique<Launcher>(line, options);
  }

 private:
  const int port_ = test::free_port();
  Flags flags_;
  Flags environment_;
};

Flags script(const std::string& text) { return {"--", "/bin/sh", "-c", text}; }

const Flags kRejoining{UNISONO_REJOINING_RANK};

// A process that has just begun another program shows no environment for a moment.
pid_t process_of(const Launcher& launcher, int rank) {
  std::map<int, pid_t> ranks;
  EXPECT_TRUE(eventually([&] { return (ranks = ranks_of(launcher)).contains(rank); }));
  return ranks[rank];
}

const std::string kHasOneAlready = "node 1 has a launcher already: give each machine a --node-rank";

// Each rank has said so.
void await_all_here(Launcher& first, Launcher& second) {
  ASSERT_TRUE(first.prints("[0] here") && first.prints("[1] here")) << first.err();
  ASSERT_TRUE(second.prints("[2] here") && second.prints("[3] here")) << second.err();
}

void expect_both_end_well(Launcher& first, Launcher& second) {
  EXPECT_EQ(first.wait(), 0) << first.err() << first.out();
  EXPECT_EQ(second.wait(), 0) << second.err() << second.out();
}

TEST(RunNodes, AnyRankRejoinsTheOthers) {
  const Nodes nodes({"--max-restarts", "3"}, {"VICTIMS=2,0,2"});
  const auto second = nodes.start(1, kRejoining), first = nodes.start(0, kRejoining);
  expect_both_end_well(*first, *second);
  EXPECT_THAT(first->sorted_lines(), ElementsAre("[0] together after 3", "[1] together after 3"));
  EXPECT_THAT(second->sorted_lines(), ElementsAre("[2] together after 3", "[3] together after 3"));
  EXPECT_THAT(first->err(), HasSubstr("was ended by SIGKILL; starting rank 0 again (2 of 3 "));
  EXPECT_THAT(second->err(), Not(HasSubstr("rank 0")));
  for (const auto& launcher : {&first, &second}) {
    EXPECT_THAT((*launcher)->err(), AllOf(HasSubstr("rank 2 on node 1 (pid "),
                                          HasSubstr("starting rank 2 again (1 of 3 restarts)"),
                                          HasSubstr("starting rank 2 again (3 of 3 restarts)"),
                                          Not(HasSubstr("sending"))));
  }
}

TEST(RunNodes, AllStartAgainAtAnotherPlace) {
  const test::TemporaryFolder folder;
  const Nodes nodes({"--max-restarts", "1", "--restart", "all"});
  const Flags command = script(
      "cd " + folder.path() +
      "; echo $TORCHELASTIC_RESTART_COUNT of $RANK port=$MASTER_PORT id=$TORCHELASTIC_RUN_ID.;"
      "[ $TORCHELASTIC_RESTART_COUNT = 0 ] || exit 0; trap 'exit 9' TERM; touch told$RANK;"
      "while [ $RANK != 3 ] || [ ! -e told0 ] || [ ! -e told1 ] || [ ! -e told2 ]; do"
      "  sleep 0.01; done; exit 7");
  const auto first = nodes.start(0, command), second = nodes.start(1, command);
  expect_both_end_well(*first, *second);
  for (const auto& launcher : {&first, &second}) {
    EXPECT_THAT((*launcher)->err(),
                AllOf(HasSubstr("rank 3 on node 1 (pid "),
                      HasSubstr("exited with status 7; starting all ranks again (1 of 1 ")));
  }
  EXPECT_THAT(first->err(), HasSubstr("sending SIGTERM to ranks 0, 1"));
  const auto port = [](const Launcher& launcher, const std::string& rank) {
    return number_after(launcher.out().substr(launcher.out().find(rank + " port=")), "port=");
  };
  EXPECT_EQ(port(*first, "0 of 0"), port(*second, "0 of 2"));
  EXPECT_EQ(port(*first, "1 of 0"), port(*second, "1 of 2"));
  EXPECT_NE(port(*first, "0 of 0"), port(*first, "1 of 0"));
  EXPECT_NE(port(*first, "0 of 0"), nodes.port());
  const std::string id = "id=127.0.0.1:" + std::to_string(nodes.port());
  EXPECT_THAT(second->out(), AllOf(HasSubstr(id + "."), HasSubstr(id + ".1.")));
}

// Rank 2 has ended well before, and its launcher waits for the others.
TEST(RunNodes, AllLaunchersEndWithTheStatusOfTheFirstFailureAnywhere) {
  const Nodes nodes({"--max-restarts", "1", "--restart", "all"});
  const Flags command = script(
      "[ $RANK = 3 ] && exit $((40 + TORCHELASTIC_RESTART_COUNT));"
      "[ $RANK = 2 ] && exit 0; while :; do sleep 0.01; done");
  const auto first = nodes.start(0, command), second = nodes.start(1, command);
  for (const auto& launcher : {&first, &second}) {
    EXPECT_EQ((*launcher)->wait(), 41) << (*launcher)->err();
    EXPECT_THAT((*launcher)->err(), HasSubstr("exited with status 41"));
  }
}

TEST(RunNodes, RefuseAnotherKey) {
  const Nodes nodes({"--max-restarts", "1"});
  const auto first = nodes.start(0, script("true"));
  const auto second = nodes.start(1, script("true"), {}, {"UNISONO_JOB_KEY=another key, no worse"});
  EXPECT_EQ(second->wait(), 1);
  EXPECT_THAT(second->err(), AllOf(HasSubstr("the launcher of node 0 at tcp 127.0.0.1:"),
                                   HasSubstr("another job key"), HasSubstr("--job-key-file")));
  EXPECT_TRUE(first->complains("claims node 1 does not know the key")) << first->err();
  const auto third = nodes.start(1, script("true"), {"--rdzv-id", "other"});
  EXPECT_EQ(third->wait(), 1);
  EXPECT_THAT(third->err(), HasSubstr("the run id (--rdzv-id) is 'other' here"));
}

TEST(RunNodes, RefuseWhoDiffersOrIsThereAlready) {
  const Nodes nodes({"--max-restarts", "1", "--nnodes", "3"});
  const auto first = nodes.start(0, script("true"));
  const std::pair<Flags, std::string> differing[] = {
      {{"--nnodes", "2"}, "node 1 has --nnodes 2 and node 0 has 3"},
      {{"-n", "3"}, "node 1 has --nproc-per-node 3 and node 0 has 2"},
      {{"--max-restarts", "5"}, "node 1 has --max-restarts 5 and node 0 has 1"},
      {{"--restart", "all"}, "node 1 has --restart all and node 0 has failed"}};
  for (const auto& [flags, message] : differing) {
    const auto other = nodes.start(1, script("true"), flags);
    EXPECT_EQ(other->wait(), 1);
    EXPECT_THAT(other->err(), HasSubstr("it refuses this one: " + message));
    EXPECT_TRUE(first->complains(message + ": give all launchers the same")) << first->err();
  }
  const auto second = nodes.start(1, script("true"));
  ASSERT_TRUE(second->complains("waiting up to 20 s for the launcher of node 2")) << second->err();
  const auto twin = nodes.start(1, script("true"), {}, {"UNISONO_TIMEOUT=1s"});
  EXPECT_EQ(twin->wait(), 1);
  EXPECT_THAT(twin->err(), HasSubstr(kHasOneAlready));
  EXPECT_TRUE(first->complains(kHasOneAlready)) << first->err();
}

// Whose machine has vanished counts as lost some time later.
TEST(RunNodes, WhoComesBeforeTheOneBeforeCountsAsLostWaitsForThat) {
  const Nodes nodes({"--max-restarts", "1", "--nnodes", "3"});
  const auto first = nodes.start(0, script("true")), second = nodes.start(1, script("true"));
  ASSERT_TRUE(second->complains("waiting up to 20 s for the launcher of node 2")) << second->err();
  const auto next = nodes.start(1, script("true"));
  ASSERT_TRUE(next->complains("waiting up to 16 s for the launcher of node 0")) << next->err();
  EXPECT_THAT(next->err(), HasSubstr(kHasOneAlready));
  second->signal(SIGKILL);
  EXPECT_TRUE(next->complains("waiting up to 20 s for the launcher of node 2")) << next->err();
}

TEST(RunNodes, ALostLauncherIsOneFailureAndItsRanksRejoin) {
  const Nodes nodes({"--max-restarts", "1"}, {"VICTIMS=2", "NODE_DIES=yes"});
  const auto first = nodes.start(0, kRejoining), second = nodes.start(1, kRejoining);
  EXPECT_EQ(second->wait(), 1000 + SIGKILL);
  ASSERT_TRUE(
      first->complains("the launcher of node 1 is lost: its connection was closed; starting "
                       "its ranks again once it has come again (1 of 1 restart)"))
      << first->err();
  const auto third = nodes.start(1, kRejoining);
  expect_both_end_well(*first, *third);
  EXPECT_THAT(third->sorted_lines(), ElementsAre("[2] together after 1", "[3] together after 1"));
  EXPECT_THAT(first->err(), Not(HasSubstr("sending")));
}

TEST(RunNodes, ALostLauncherIsAwaitedWhereAllStartAgain) {
  const Nodes nodes({"--max-restarts", "1", "--restart", "all"});
  const Flags command = script(
      "echo $TORCHELASTIC_RESTART_COUNT here;"
      "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exec sleep 1000");
  const auto first = nodes.start(0, command), second = nodes.start(1, command);
  ASSERT_TRUE(first->prints("0 here") && second->prints("0 here")) << first->err();
  second->signal(SIGKILL);
  ASSERT_TRUE(first->complains("waiting up to 20 s for the launcher of node 1") &&
              first->complains("starting all ranks again (1 of 1"))
      << first->err();
  const auto third = nodes.start(1, command);
  expect_both_end_well(*first, *third);
  EXPECT_THAT(third->sorted_lines(), ElementsAre("[2] 1 here", "[3] 1 here"));
}

TEST(RunNodes, RanksGoOnWithoutTheLauncherOfNodeZero) {
  const test::TemporaryFolder folder;
  const Nodes nodes({"--max-restarts", "9"});
  const Flags command = script(kMeet + "cd " + folder.path() +
                               "; echo here; while [ ! -e go ]; do sleep 0.01; done;"
                               "[ $RANK = 3 ] && exit 5; exec sleep 1000");
  const auto first = nodes.start(0, command), second = nodes.start(1, command);
  ASSERT_NO_FATAL_FAILURE(await_all_here(*first, *second));
  first->signal(SIGKILL);
  ASSERT_TRUE(
      second->complains("the launcher of node 0 is lost: its connection was closed; the "
                        "ranks go on, and none is started again"))
      << second->err();
  std::ofstream(folder / "go") << "yes";
  EXPECT_EQ(second->wait(), 5) << second->err();
  EXPECT_THAT(second->err(), Not(HasSubstr("starting")));
}

// The others would wait for its ranks in init().
TEST(RunNodes, TheLauncherOfNodeZeroLostBeforeAllHaveMetEndsTheJob) {
  const Nodes nodes({"--max-restarts", "9"}, {"UNISONO_TIMEOUT=10min"});
  const Flags command = script("echo here; [ $RANK = 0 ] && exec sleep 1000; exec " +
                               std::string(UNISONO_REJOINING_RANK));
  const auto first = nodes.start(0, command), second = nodes.start(1, command);
  ASSERT_TRUE(first->prints("[0] here") && second->prints("[2] here") && second->prints("[3] here"))
      << first->err() << second->err();
  first->signal(SIGKILL);
  EXPECT_EQ(second->wait(), 1);
  EXPECT_THAT(second->err(), HasSubstr("the launcher of node 0 is lost: its connection was closed "
                                       "before all ranks had met"));
}

// That of node 0 has still to end what its ranks have left running.
TEST(RunNodes, LaunchersOfTheNextJobDoNotComeToTheOneBefore) {
  const test::TemporaryFolder folder;
  const Nodes nodes({"--max-restarts", "1", "--grace", "20"});
  const Flags leaves =
      script("[ $RANK = 0 ] && (trap 'touch " + folder.path() + "/asked' TERM; while [ ! -e " +
             folder.path() + "/go ]; do sleep 0.01; done) & exit 0");
  const auto first = nodes.start(0, leaves), second = nodes.start(1, leaves);
  EXPECT_EQ(second->wait(), 0) << second->err();
  const auto next_second = nodes.start(1, script("echo next"));
  ASSERT_TRUE(next_second->complains("cannot connect to tcp 127.0.0.1:")) << next_second->err();
  ASSERT_TRUE(is_alive(first->pid()));
  const auto next_first = nodes.start(0, script("echo next"));
  expect_both_end_well(*next_first, *next_second);
  std::ofstream(folder / "go") << "yes";
  EXPECT_EQ(first->wait(), 0) << first->err();
}

// The launcher that is asked does not answer any more.
TEST(RunNodes, AFailureThatNobodyAnswersEndsTheRanksOfItsNode) {
  const Nodes nodes({"--max-restarts", "9"});
  const Flags command = script(kMeet + "echo here; exec sleep 1000");
  const auto first = nodes.start(0, command), second = nodes.start(1, command);
  ASSERT_NO_FATAL_FAILURE(await_all_here(*first, *second));
  first->signal(SIGSTOP);
  ASSERT_TRUE(eventually([&] { return is_stopped(first->pid()); }));
  const pid_t rank = process_of(*second, 3);
  ASSERT_EQ(::kill(rank, SIGKILL), 0);
  // Its launcher has told of it once it has waited for it.
  ASSERT_TRUE(eventually([&] { return ::kill(rank, 0) != 0; }));
  first->signal(SIGKILL);
  EXPECT_EQ(second->wait(), 128 + SIGKILL);
  EXPECT_THAT(second->err(),
              AllOf(HasSubstr("the launcher of node 0 is lost"),
                    HasSubstr("rank 3 on node 1 (pid "), Not(HasSubstr("starting"))));
}

TEST(RunNodes, NameThoseThatDoNotCome) {
  const Nodes nodes({"--max-restarts", "1"}, {"UNISONO_TIMEOUT=300ms"});
  const auto first = nodes.start(0, script("echo here"));
  EXPECT_EQ(first->wait(), 1);
  EXPECT_THAT(first->err(), HasSubstr("the launcher of node 1 did not come within 300 ms "
                                      "(UNISONO_TIMEOUT): run the same command there"));
  EXPECT_EQ(first->out(), "");
  const auto second = nodes.start(1, script("echo here"));
  EXPECT_EQ(second->wait(), 1);
  EXPECT_THAT(second->err(), AllOf(HasSubstr("node 1 did not reach the launcher of node 0 at tcp"),
                                   HasSubstr("within 300 ms")));
}

TEST(RunNodes, GarbageAtThePortHarmsNothing) {
  const Nodes nodes({"--max-restarts", "1"});
  const auto first = nodes.start(0, script("echo here"));
  ASSERT_TRUE(first->complains("waiting up to")) << first->err();
  const auto fd = rendezvous::connect_tcp("127.0.0.1", static_cast<std::uint16_t>(nodes.port()),
                                          Clock::now() + kPatience);
  ASSERT_TRUE(fd) << fd.error().message();
  EXPECT_GT(::send(fd->get(), "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL), 0);
  ASSERT_TRUE(first->complains("node 0: refused a connection from 127.0.0.1:")) << first->err();
  const auto second = nodes.start(1, script("echo here"));
  expect_both_end_well(*first, *second);
}

TEST(RunNodes, ALauncherThatIsToldToEndEndsItsRanksAlone) {
  const test::TemporaryFolder folder;
  const Nodes nodes({"--max-restarts", "9"});
  const Flags command =
      script(kMeet + "cd " + folder.path() +
             "; echo here; while [ ! -e go ]; do sleep 0.01; done; [ $RANK != 1 ]");
  const auto first = nodes.start(0, command), second = nodes.start(1, command);
  ASSERT_NO_FATAL_FAILURE(await_all_here(*first, *second));
  second->signal(SIGTERM);
  EXPECT_EQ(second->wait(), 128 + SIGTERM);
  ASSERT_TRUE(first->complains("the launcher of node 1 was told to end; no rank is started again"));
  std::ofstream(folder / "go") << "yes";
  EXPECT_EQ(first->wait(), 1);
  for (const auto& launcher : {&first, &second}) {
    EXPECT_THAT((*launcher)->err(), Not(HasSubstr("starting")));
  }
}

TEST(RunNodes, TheSignalToNodeZeroStopsRestarts) {
  const Nodes nodes({"--max-restarts", "9"});
  const Flags command = script(kMeet + "echo here; exec sleep 1000");
  const auto first = nodes.start(0, command), second = nodes.start(1, command);
  ASSERT_NO_FATAL_FAILURE(await_all_here(*first, *second));
  first->signal(SIGINT);
  EXPECT_EQ(first->wait(), 128 + SIGINT);
  ASSERT_TRUE(second->complains("the launcher of node 0 was told to end; the ranks go on"));
  ASSERT_EQ(::kill(process_of(*second, 3), SIGKILL), 0);
  EXPECT_EQ(second->wait(), 128 + SIGKILL);
  EXPECT_THAT(second->err(), Not(HasSubstr("starting")));
}

// It is told before it has anything to end.
TEST(RunNodes, ALauncherThatWaitsFollowsASignal) {
  const Nodes nodes({"--max-restarts", "1", "--nnodes", "3"});
  const auto first = nodes.start(0, script("true")), second = nodes.start(1, script("true"));
  ASSERT_TRUE(second->complains("waiting up to 20 s for the launcher of node 2")) << second->err();
  first->signal(SIGTERM);
  EXPECT_EQ(first->wait(), 128 + SIGTERM);
  EXPECT_EQ(second->wait(), 1);
  EXPECT_THAT(second->err(),
              HasSubstr("the launcher of node 0 was told to end before all ranks had met"));
}

}  // namespace
}  // namespace unisono::run
