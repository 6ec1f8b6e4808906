// `unisono blame` on real jobs: ranks that are killed or do not come, living and afterwards.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "launcher.h"
#include "recorder/record_format.h"
#include "shell.h"
#include "tests/support/child_process.h"
#include "tests/support/temporary_folder.h"
#include "unisono/unisono.hpp"

namespace unisono::run {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

// Ranks make three calls together, and all but rank 1 a fourth one, for which rank 1 never comes.
int late_rank() {
  Communicator comm = init();
  std::vector<float> data(4);
  for (int i = 0; i < 3; ++i) comm.all_reduce(data, ops::sum);
  std::printf("pid of %d=%d\n", comm.rank(), getpid());
  std::fflush(stdout);
  if (comm.rank() == 1) pause();
  try {
    comm.all_reduce(data, ops::sum);
  } catch (const Error& error) {
    std::printf("rank %d was told of rank %d\n", comm.rank(), error.rank());
    return 3;
  }
  return 0;
}
const test::RoleEntry kLateRank("late", late_rank);

int good_rank() {
  try {
    Communicator comm = init();
    comm.barrier();
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 4;
  }
  return 0;
}
const test::RoleEntry kGoodRank("good", good_rank);

// Makes calls until it is ended.
int busy_rank() {
  Communicator comm = init();
  std::vector<float> data(4);
  for (int i = 0; i < 3; ++i) comm.all_reduce(data, ops::sum);
  std::printf("pid of %d=%d\n", comm.rank(), getpid());
  std::fflush(stdout);
  while (true) comm.all_reduce(data, ops::sum);
}
const test::RoleEntry kBusyRank("busy", busy_rank);

// Rank 1 is a call ahead of the others, which come when it has been ended and go on without it.
int surviving_rank() {
  Communicator comm = init();
  int pid = getpid();
  std::vector<float> data(1 << 20), ahead(4);
  std::printf("pid of %d=%d\n", comm.rank(), pid);
  std::fflush(stdout);
  comm.broadcast(std::span(&pid, 1), 1);
  if (comm.rank() == 1) {
    const Request request = comm.all_reduce_async(data, ops::sum);
    comm.all_reduce(ahead, ops::sum);
  }
  while (kill(pid, 0) == 0) usleep(1000);
  try {
    comm.all_reduce(data, ops::sum);
  } catch (const Error&) {
    comm.shrink().barrier();
  }
  return 0;
}
const test::RoleEntry kSurvivingRank("surviving", surviving_rank);

// Rank 2 ends itself, and the others hear of it before they follow the launcher's SIGTERM. Started
// again, all end well.
int restarted_rank() {
  sigset_t to_end;
  sigemptyset(&to_end);
  sigaddset(&to_end, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &to_end, nullptr);
  Communicator comm = init();
  std::vector<float> data(4);
  comm.all_reduce(data, ops::sum);
  const bool is_first = std::getenv("TORCHELASTIC_RESTART_COUNT") == std::string("0");
  if (is_first && comm.rank() == 2) kill(getpid(), SIGKILL);
  try {
    comm.all_reduce(data, ops::sum);
  } catch (const Error&) {
    pthread_sigmask(SIG_UNBLOCK, &to_end, nullptr);
    pause();
  }
  return 0;
}
const test::RoleEntry kRestartedRank("restarted", restarted_rank);

// Rank 1 ends itself; started again, it does not join for long. The others hear of it and wait.
int late_successor() {
  const bool is_first = std::getenv("TORCHELASTIC_RESTART_COUNT") == std::string("0");
  if (is_first) {
    Communicator comm = init();
    std::vector<float> data(4);
    try {
      comm.all_reduce(data, ops::sum);
      if (comm.rank() == 1) kill(getpid(), SIGKILL);
      comm.all_reduce(data, ops::sum);
    } catch (const Error&) {
      std::printf("pid of %d=%d\n", comm.rank(), getpid());
    }
    std::fflush(stdout);
    pause();
  }
  std::printf("again\n");
  std::fflush(stdout);
  pause();
  return 0;
}
const test::RoleEntry kLateSuccessor("successor", late_successor);

// Nobody closes the communicator.
int careless_rank() {
  Communicator comm = init();
  comm.barrier();
  _exit(comm.rank() == 0 ? 3 : 0);
}
const test::RoleEntry kCarelessRank("careless", careless_rank);

// Another thread communicates, and the first one ends.
int worker_rank() {
  static std::latch has_joined(1);
  std::thread([] {
    Communicator comm = init();
    comm.barrier();
    std::printf("pid of %d=%d\n", comm.rank(), getpid());
    std::fflush(stdout);
    has_joined.count_down();
    pause();
  }).detach();
  has_joined.wait();
  pthread_exit(nullptr);
}
const test::RoleEntry kWorkerRank("worker", worker_rank);

std::vector<std::string> ranks(int count, const std::string& role) {
  return {"-n", std::to_string(count), "--", std::filesystem::read_symlink("/proc/self/exe"),
          "--role=" + role};
}

std::string blame(const std::string& arguments, int status = 0) {
  const test::ShellRun run =
      test::run_shell(std::string(UNISONO_COMMAND) + " blame " + arguments + " 2>&1");
  EXPECT_EQ(run.status, status) << run.output;
  return run.output;
}

// The pid of a rank once all have made their first calls; 0 where they do not.
pid_t pid_of(Launcher& launcher, int rank, int count) {
  for (int each = 0; each < count; ++each) {
    if (!launcher.prints("pid of " + std::to_string(each) + "=")) return 0;
  }
  return number_after(launcher.out(), "pid of " + std::to_string(rank) + "=");
}

constexpr char kMissing[] =
    "rank 1 is missing: it has not arrived; its last call was all_reduce\\(count 4, float32, "
    "sum\\) "
    "\\(operation [0-9]+\\)";

TEST(BlameCommand, SaysWhoIsMissingInAJobThatLives) {
  Launcher launcher(ranks(3, "late"));
  const pid_t late = pid_of(launcher, 1, 3);
  ASSERT_GT(late, 0) << launcher.err();
  std::string said;
  const std::string of_launcher = std::to_string(launcher.pid());
  EXPECT_TRUE(eventually([&] {
    said = blame(of_launcher);
    return said.find("ranks 0 and 2 wait for rank 1 in all_reduce") != std::string::npos;
  })) << said;
  EXPECT_THAT(said, AllOf(ContainsRegex(kMissing), HasSubstr("records of 3 of 3 ranks")));
  // Any rank of the job leads to all of them.
  EXPECT_THAT(blame(std::to_string(late)), AllOf(ContainsRegex(kMissing), HasSubstr("0 and 2")));
  EXPECT_THAT(
      blame("--json " + of_launcher),
      AllOf(HasSubstr(R"("kind":"missing","first":[1])"), HasSubstr(R"("waits_for":[1])"),
            HasSubstr(R"("state":"started")"), HasSubstr(R"("state":"completed")"),
            ContainsRegex(R"("world_size":3,"records":3,"began_s":[0-9.e+]+,"runs":true)")));
}

TEST(BlameCommand, ARankWhoseFirstThreadHasEndedRuns) {
  Launcher launcher(ranks(2, "worker"));
  const pid_t worker = pid_of(launcher, 1, 2);
  ASSERT_GT(worker, 0) << launcher.err();
  ASSERT_TRUE(eventually([&] {
    std::ifstream stat("/proc/" + std::to_string(worker) + "/stat");
    return std::string((std::istreambuf_iterator<char>(stat)), {}).find(") Z ") !=
           std::string::npos;
  }));
  EXPECT_THAT(blame(std::to_string(launcher.pid())),
              AllOf(ContainsRegex("\n +1 .* runs "), Not(HasSubstr("ended"))));
}

TEST(BlameCommand, TheLauncherSaysWhoStoppedFirst) {
  Launcher launcher(ranks(3, "late"));
  const pid_t late = pid_of(launcher, 1, 3);
  ASSERT_GT(late, 0) << launcher.err();
  ASSERT_EQ(kill(late, SIGKILL), 0);
  EXPECT_NE(launcher.wait(), 0);  // survivors may end before the launcher sees who was killed
  EXPECT_THAT(launcher.err(),
              ContainsRegex("blame: rank 1 stopped first: it was ended after all_reduce.*"
                            "ranks 0 and 2 failed because of rank 1"));
}

TEST(BlameCommand, WhoGoesOnAndLeavesHasNotStoppedFirst) {
  Launcher launcher(ranks(3, "surviving"));
  const pid_t killed = pid_of(launcher, 1, 3);
  ASSERT_GT(killed, 0) << launcher.err();
  ASSERT_EQ(kill(killed, SIGKILL), 0);
  EXPECT_NE(launcher.wait(), 0);
  EXPECT_THAT(launcher.err(), ContainsRegex("blame: rank 1 stopped first: it was ended"));
}

// A rank that the system does not let run for a moment is missing indeed, which is seldom.
TEST(BlameCommand, NobodyIsMissingInAJobThatMakesProgress) {
  Launcher launcher(ranks(3, "busy"));
  ASSERT_GT(pid_of(launcher, 1, 3), 0) << launcher.err();
  constexpr int kLooks = 6;
  int blamed = 0;
  for (int i = 0; i < kLooks; ++i) {
    const std::string said = blame("--json " + std::to_string(launcher.pid()));
    blamed += said.find(R"("first":[])") == std::string::npos;
  }
  EXPECT_LE(blamed, kLooks / 2);
}

TEST(BlameCommand, NobodyIsToBlameWhereTheLauncherWasToldToEnd) {
  for (const int signal : {SIGTERM, SIGINT}) {
    Launcher launcher(ranks(3, "busy"));
    ASSERT_GT(pid_of(launcher, 1, 3), 0) << launcher.err();
    launcher.signal(signal);
    EXPECT_NE(launcher.wait(), 0);
    EXPECT_THAT(launcher.err(), Not(HasSubstr("blame:")));
  }
}

TEST(BlameCommand, ARankThatExitedWellWasNotEnded) {
  Launcher launcher(ranks(2, "careless"));
  EXPECT_EQ(launcher.wait(), 3);
  EXPECT_THAT(launcher.err(), AllOf(ContainsRegex("blame: rank 0 stopped first: it was ended"),
                                    Not(HasSubstr("rank 1 was ended"))));
  EXPECT_THAT(launcher.err(), Not(HasSubstr("besides, rank 1")));
}

// As docs/recorder.md shows it; the launcher's guard has the same command line.
TEST(BlameCommand, TheLauncherIsFoundByItsName) {
  Launcher launcher(ranks(2, "busy"));
  ASSERT_GT(pid_of(launcher, 1, 2), 0) << launcher.err();
  const std::string rank = std::filesystem::read_symlink("/proc/self/exe");
  EXPECT_THAT(blame("$(pgrep -of 'unisono run.*" + rank + " --role=busy')"),
              HasSubstr("records of 2 of 2 ranks"));
}

TEST(BlameCommand, RecordsTakeNoDescriptorsThatRanksNeed) {
  const test::ShellRun run = test::run_shell("ulimit -n 100 && " + std::string(UNISONO_COMMAND) +
                                             " run -n 30 --bind-to none -- true 2>&1");
  EXPECT_EQ(run.status, 0) << run.output;
}

TEST(BlameCommand, NamesOfFilesDoNotReachTheTerminalAsTheyAre) {
  const test::TemporaryFolder folder;
  Launcher launcher(ranks(2, "good"), {.environment = {"UNISONO_RECORDER=" + folder.path()}});
  EXPECT_EQ(launcher.wait(), 0);
  std::ofstream(folder / "\x1b[31m\xff.record") << "short";
  ASSERT_EQ(mkfifo((folder / "pipe.record").c_str(), 0600), 0);
  for (const char* how : {"", "--json "}) {
    EXPECT_THAT(blame(how + folder.path()),
                AllOf(HasSubstr("?[31m?.record: it has 5 bytes"), Not(HasSubstr("\x1b")),
                      HasSubstr("pipe.record: it is no file")));
  }
}

TEST(BlameCommand, FilesTellTheSameWhenAllRanksAreGone) {
  const test::TemporaryFolder folder;
  Launcher launcher(ranks(3, "late"), {.environment = {"UNISONO_RECORDER=" + folder.path()}});
  const pid_t late = pid_of(launcher, 1, 3);
  ASSERT_GT(late, 0) << launcher.err();
  EXPECT_THAT(blame(std::to_string(late)), HasSubstr("records of 3 of 3 ranks"));
  ASSERT_EQ(kill(late, SIGKILL), 0);
  EXPECT_NE(launcher.wait(), 0);
  EXPECT_THAT(launcher.err(), HasSubstr("blame: `unisono blame " + folder.path() + "` says"));
  const std::string trace = folder / "trace.json";
  EXPECT_THAT(blame(folder.path() + " --trace " + trace),
              AllOf(HasSubstr("rank 1 stopped first: it was ended after all_reduce"),
                    HasSubstr("ranks 0 and 2 failed because of rank 1")));
  std::ifstream file(trace);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_THAT(text, AllOf(HasSubstr("\"traceEvents\":["), HasSubstr("\"name\":\"all_reduce\"")));
}

// Changes the header of a record.
template <typename Change>
void change_header(const std::string& path, Change change) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  recorder::Header header;
  ASSERT_TRUE(file.read(reinterpret_cast<char*>(&header), sizeof header)) << path;
  change(header);
  file.seekp(0);
  file.write(reinterpret_cast<const char*>(&header), sizeof header);
}

// Its process numbers are those of others now, and its clock began anew.
TEST(BlameCommand, RecordsOfAnEarlierBootAreOfNoJobThatLives) {
  const test::TemporaryFolder folder, copies;
  Launcher launcher(ranks(3, "late"), {.environment = {"UNISONO_RECORDER=" + folder.path()}});
  ASSERT_GT(pid_of(launcher, 1, 3), 0) << launcher.err();
  EXPECT_THAT(blame(folder.path()), HasSubstr(" runs "));
  const auto booted_before = [](recorder::Header& header) {
    header.boot[0] = header.boot[0] == 'x' ? 'y' : 'x';
    header.realtime_ns -= header.monotonic_ns + 1'000'000'000;
  };
  for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
    const std::string copy = copies / file.path().filename();
    std::filesystem::copy_file(file.path(), copy);
    change_header(copy, booted_before);
  }
  EXPECT_THAT(blame(copies.path()), AllOf(Not(HasSubstr(" runs ")), Not(HasSubstr(" ended ")),
                                          HasSubstr("records of 3 of 3 ranks")));
  for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
    const std::string name = file.path().filename();
    if (name.ends_with("-1.record")) continue;
    std::filesystem::copy_file(file.path(), copies / name,
                               std::filesystem::copy_options::overwrite_existing);
  }
  EXPECT_THAT(blame(copies.path()), AllOf(HasSubstr("records of 2 of 3 ranks"),
                                          ContainsRegex("left out: .*-1.record is of an earlier "
                                                        "boot of ")));
}

// Files stay until somebody removes them, and each restart makes a job of its own.
TEST(BlameCommand, MoreFilesOfOtherJobsThanMayBeOpenDoNotMatter) {
  const test::TemporaryFolder folder;
  Launcher launcher(ranks(3, "late"), {.environment = {"UNISONO_RECORDER=" + folder.path()}});
  const pid_t late = pid_of(launcher, 1, 3);
  ASSERT_GT(late, 0) << launcher.err();
  ASSERT_EQ(kill(late, SIGKILL), 0);
  EXPECT_NE(launcher.wait(), 0);
  const std::string one = std::filesystem::directory_iterator(folder.path())->path();
  for (int job = 0; job < 120; ++job) {
    const std::string copy = folder / ("!" + std::to_string(job) + ".record");
    std::filesystem::copy_file(one, copy);
    change_header(copy, [job](recorder::Header& header) {
      std::snprintf(header.job, sizeof header.job, "earlier-%03d", job);
      header.realtime_ns -= (job + 1) * 1'000'000'000LL;
    });
  }
  const auto blame_with_few = [&](const std::string& arguments) {
    return test::run_shell("ulimit -n 100; " + std::string(UNISONO_COMMAND) + " blame " +
                           folder.path() + arguments + " 2>&1")
        .output;
  };
  const std::string said = blame_with_few("");
  EXPECT_THAT(said, AllOf(HasSubstr("records of 3 of 3 ranks"),
                          HasSubstr("rank 1 stopped first: it was ended after all_reduce"),
                          HasSubstr("#   88 that began earlier\n#   job earlier-031: "),
                          Not(HasSubstr("open files"))));
  EXPECT_THAT(blame_with_few(" --job earlier-119"), HasSubstr("# job earlier-119: records of 1"));
}

TEST(BlameCommand, SuccessIsSilentAndFilesOfSeveralJobsAreToldApart) {
  const test::TemporaryFolder folder;
  for (int job = 0; job < 2; ++job) {
    Launcher launcher(ranks(2, "good"), {.environment = {"UNISONO_RECORDER=" + folder.path()}});
    EXPECT_EQ(launcher.wait(), 0);
    EXPECT_EQ(launcher.err(), "");
  }
  std::ofstream(folder / "short.record") << "short";
  const std::string said = blame(folder.path());
  EXPECT_THAT(said, AllOf(HasSubstr("all ranks have left their job, none with a failure"),
                          HasSubstr("records of 2 of 2 ranks"),
                          ContainsRegex("other jobs, of which --job shows one:\n#   job [0-9a-f]+: "
                                        "records of 2 of 2 ranks, began 20[-0-9]+ [:0-9]+; all "
                                        "ranks have left their job, none with a failure"),
                          HasSubstr("short.record: it has 5 bytes")));
  const std::string other = said.substr(said.find("#   job ") + 8, 32);
  EXPECT_THAT(blame(folder.path() + " --job " + other), HasSubstr("# job " + other));
}

// A command line of three ranks of which rank 2 fails first, and the failed one or all start again.
std::vector<std::string> restarted(const std::string& who, int restarts) {
  std::vector<std::string> line{"--max-restarts", std::to_string(restarts), "--restart", who};
  const std::vector<std::string> all = ranks(3, "restarted"),
                                 failed{"-n", "3", UNISONO_REJOINING_RANK};
  const std::vector<std::string>& rest = who == "all" ? all : failed;
  line.insert(line.end(), rest.begin(), rest.end());
  return line;
}

// Each start is a job of its own.
TEST(BlameCommand, SaysWhoStoppedFirstBeforeARestartToo) {
  const test::TemporaryFolder folder;
  for (const char* who : {"failed", "all"}) {
    const std::string place = folder / who;
    std::filesystem::create_directory(place);
    Launcher launcher(restarted(who, 2),
                      {.environment = {"UNISONO_RECORDER=" + place, "VICTIMS=2,1"}});
    EXPECT_EQ(launcher.wait(), 0) << launcher.err() << launcher.out();
    const std::string said = blame(place);
    EXPECT_THAT(said, ContainsRegex("began [^;\n]*; rank 2 stopped first: it was ended "));
    if (who == std::string("failed")) {
      EXPECT_THAT(said,
                  ContainsRegex("rank 2 stopped.*\n#   job [0-9a-f]+: records of 3 of 3 ranks, "
                                "began [^;\n]*; rank 1 stopped first: it was ended"));
    }
    EXPECT_THAT(said, HasSubstr("all ranks have left their job, none with a failure"));
    EXPECT_THAT(blame("--json " + place), HasSubstr(R"("runs":false,"first":[2])"));
  }
}

TEST(BlameCommand, TheLauncherSaysWhoStoppedFirstAtEachRestart) {
  for (const char* who : {"failed", "all"}) {
    Launcher launcher(restarted(who, 1), {.environment = {"VICTIMS=2"}});
    EXPECT_EQ(launcher.wait(), 0) << launcher.err() << launcher.out();
    EXPECT_THAT(launcher.err(), ContainsRegex("again \\(1 of 1 restart\\)\n(.*sending.*\n)?"
                                              ".*blame: rank 2 stopped first: it was ended"));
  }
}

TEST(BlameCommand, TheLauncherSaysNothingOfFilesThatNoRankHasWritten) {
  const test::TemporaryFolder folder;
  Launcher launcher({"-n", "2", "false"}, {.environment = {"UNISONO_RECORDER=" + folder.path()}});
  EXPECT_NE(launcher.wait(), 0);
  EXPECT_THAT(launcher.err(), Not(HasSubstr("blame:")));
}

// Its record is that of the one that was killed.
TEST(BlameCommand, TheLauncherTellsARankStartedAgainFromItsPredecessor) {
  std::vector<std::string> line{"--max-restarts", "1"};
  const std::vector<std::string> rest = ranks(3, "successor");
  line.insert(line.end(), rest.begin(), rest.end());
  Launcher launcher(line);
  for (const char* said : {"again", "pid of 0=", "pid of 2="}) {
    ASSERT_TRUE(launcher.prints(said)) << launcher.err();
  }
  ASSERT_EQ(kill(number_after(launcher.out(), "pid of 0="), SIGKILL), 0);
  ASSERT_TRUE(launcher.complains("starting rank 0 again"));
  launcher.signal(SIGTERM);
  EXPECT_NE(launcher.wait(), 0);
  const std::string& said = launcher.err();
  EXPECT_THAT(said.substr(said.find("starting rank 0 again")),
              ContainsRegex("blame: rank 1 stopped first: it was ended after all_reduce"));
}

// After a rejoining the launcher may have no record of the job that goes on, or all of it.
TEST(BlameCommand, TheLauncherBlamesNoSurvivorOfALaterFailure) {
  for (const char* victims : {"0,2", "0,0,2"}) {
    Launcher launcher({"-n", "3", "--max-restarts", std::string(victims) == "0,2" ? "1" : "2",
                       "--timeout-report", "1", UNISONO_REJOINING_RANK},
                      {.environment = {std::string("VICTIMS=") + victims}});
    EXPECT_NE(launcher.wait(), 0);
    EXPECT_THAT(launcher.err(), ContainsRegex("rank 2 \\(pid [0-9]+\\) was ended by SIGKILL"));
    EXPECT_THAT(launcher.err(), Not(HasSubstr("missing")));
    EXPECT_THAT(launcher.err(), Not(ContainsRegex("blame: rank 1")));
  }
}

TEST(BlameCommand, NamesTheJobsThereAreWhereOneIsNot) {
  const test::TemporaryFolder folder;
  Launcher launcher(ranks(2, "good"), {.environment = {"UNISONO_RECORDER=" + folder.path()}});
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_THAT(blame(folder.path() + " --job none", 1),
              ContainsRegex("no record of job none in .*\n  there is job [0-9a-f]+"));
}

TEST(BlameCommand, SaysWhereThereIsNothingToRead) {
  const test::TemporaryFolder folder;
  EXPECT_THAT(blame(folder.path(), 1), HasSubstr("no record of a rank in " + folder.path()));
  EXPECT_THAT(blame(folder / "none", 1), HasSubstr("is no directory and no process number"));
  EXPECT_THAT(blame(std::to_string(getpid()), 1), HasSubstr("no record of a rank in process"));
  EXPECT_THAT(blame("999999999", 1), HasSubstr("there is no process 999999999"));
  EXPECT_THAT(blame("", 2), HasSubstr("directory-or-process is required"));
}

TEST(BlameCommand, ADirectoryThatRanksCannotUseEndsInit) {
  Launcher launcher(ranks(2, "good"), {.environment = {"UNISONO_RECORDER=/proc/none"}});
  EXPECT_EQ(launcher.wait(), 4);
  EXPECT_THAT(launcher.err(), HasSubstr("UNISONO_RECORDER=/proc/none: "));
}

}  // namespace
}  // namespace unisono::run
