// `unisono tune` as a user starts it, the files it writes, and its rows from times that are given.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "shell.h"
#include "tests/support/temporary_folder.h"
#include "tools/tune/measure.h"
#include "tools/tune/rows.h"
#include "tools/tune/task.h"

namespace unisono::tune {
namespace {

using algorithms::Link;
using algorithms::SelectionTable;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

test::ShellRun unisono(const std::string& arguments, const std::string& environment = "") {
  return test::run_shell(environment + " " + UNISONO_COMMAND + " " + arguments + " 2>&1");
}

class Tune : public testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_ / name; }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(file(name)) << text;
    return file(name);
  }
  static std::string read(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

 private:
  const test::TemporaryFolder folder_;
};

TEST_F(Tune, WritesATableThatRanksUse) {
  const std::string path = file("table.txt");
  const test::ShellRun tuned = unisono("tune -n 2 -e 1K --budget-ms 0.5 -o " + path);
  ASSERT_EQ(tuned.status, 0) << tuned.output;
  EXPECT_THAT(tuned.output, AllOf(HasSubstr("UNISONO_TUNING=" + path), HasSubstr("rows")));
  const std::string text = read(path);
  EXPECT_THAT(text, AllOf(HasSubstr("# 2 ranks, "), HasSubstr("unisono tune -n 2 -e 1K"),
                          HasSubstr("# collective")));
  const auto table = SelectionTable::from_text(text);
  ASSERT_TRUE(table) << table.status().message();
  const auto measured = [&](Collective collective, Link link) {
    return std::any_of(table->rows().begin(), table->rows().end(), [&](const auto& row) {
      return row.line > 0 && row.collective == collective && !row.any_link && row.link == link &&
             row.ranks_min == 2 && row.ranks_max == 2 && row.cores != algorithms::Cores::kAny;
    });
  };
  for (const Link link : {Link::kShm, Link::kUnix, Link::kTcp}) {
    EXPECT_TRUE(measured(Collective::kAllReduce, link)) << text;
    EXPECT_TRUE(measured(Collective::kBarrier, link)) << text;
    EXPECT_FALSE(measured(Collective::kScan, link)) << text;
  }
  for (const std::string transport : {"shm", "unix", "tcp"}) {
    const test::ShellRun why =
        unisono("info --why all_reduce 1K -n 2 --transport " + transport, "UNISONO_TUNING=" + path);
    EXPECT_EQ(why.status, 0);
    EXPECT_THAT(why.output, HasSubstr("because of " + path + ", line "));
    const test::ShellRun perf = unisono(
        "perf all_reduce -n 2 -b 4 -e 64K -f 16 -I 3 -w 0 --timeout 30 "
        "--transport " +
            transport,
        "UNISONO_TUNING=" + path);
    EXPECT_EQ(perf.status, 0) << perf.output;
  }
}

TEST_F(Tune, MeasuresOnlyTheTransportThatIsAskedFor) {
  const std::string path = file("table.txt");
  // A setting that a table replaces must not decide what is measured for it.
  const test::ShellRun tuned =
      unisono("tune -n 3 -e 64 --budget-ms 0.5 --transport unix -o " + path,
              "UNISONO_TUNING=/no/such/file UNISONO_TRANSPORT=loopback UNISONO_ORDER=canonical");
  ASSERT_EQ(tuned.status, 0) << tuned.output;
  const std::string text = read(path);
  EXPECT_THAT(text, AllOf(HasSubstr(" unix "), Not(HasSubstr(" tcp ")), Not(HasSubstr(" shm "))));
}

TEST_F(Tune, RefusesAFileThatCannotBeWrittenBeforeItMeasures) {
  const test::ShellRun tuned = unisono("tune -n 2 -o " + file("no/such/folder/table.txt"));
  EXPECT_EQ(tuned.status, 1);
  EXPECT_THAT(tuned.output,
              AllOf(HasSubstr("cannot be written: No such file"), Not(HasSubstr("measurements"))));
}

TEST_F(Tune, KeepsTheModeOfTheTable) {
  const std::string path = file("table.txt");
  std::ofstream(path) << "# old\n";
  std::filesystem::permissions(path, std::filesystem::perms(0664));
  const test::ShellRun tuned =
      unisono("tune -n 2 -e 64 --budget-ms 0.1 --transport tcp -o " + path, "umask 022; ");
  ASSERT_EQ(tuned.status, 0) << tuned.output;
  EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms(0664));
  EXPECT_THAT(read(path), Not(HasSubstr("# old")));
}

// As a container has a single file of its host's.
TEST_F(Tune, WritesInPlaceWhatCannotBeReplaced) {
  const std::string path = file("table.txt");
  std::ofstream(path) << "# old\n";
  const std::string mount = "unshare -m sh -c 'mount --bind " + path + " " + path + " && ";
  if (test::run_shell(mount + "true'").status != 0) GTEST_SKIP() << "no mounts of its own";
  const test::ShellRun tuned = test::run_shell(
      mount + UNISONO_COMMAND " tune -n 2 -e 64 --budget-ms 0.1 --transport tcp -o " + path + "'");
  ASSERT_EQ(tuned.status, 0) << tuned.output;
  EXPECT_THAT(read(path), AllOf(HasSubstr(" tcp "), Not(HasSubstr("# old"))));
}

TEST_F(Tune, IsRefusedAsTheRanksOfALauncher) {
  const test::ShellRun tuned = unisono(
      "run -n 2 -- " UNISONO_COMMAND " tune -n 2 -e 64 --budget-ms 0.1 -o " + file("t.txt"));
  EXPECT_EQ(tuned.status, 2);
  EXPECT_THAT(tuned.output, HasSubstr("unisono tune: a launcher started it 2 times"));
  EXPECT_FALSE(std::filesystem::exists(file("t.txt")));
}

TEST_F(Tune, LeavesAnOldTableWhereMeasuringFails) {
  const std::string path = write("table.txt", "# old\n");
  constexpr const char* kElsewhere = "UNISONO_INTERFACE=192.0.2.1";
  const std::string tune = "tune -n 2 -e 64 --transport tcp -o ";
  const test::ShellRun tuned = unisono(tune + path, kElsewhere);
  EXPECT_EQ(tuned.status, 1);
  EXPECT_THAT(tuned.output, HasSubstr("cannot listen on 192.0.2.1"));
  EXPECT_EQ(read(path), "# old\n");
  EXPECT_EQ(unisono(tune + file("new.txt"), kElsewhere).status, 1);
  EXPECT_FALSE(std::filesystem::exists(file("new.txt")));
}

TEST_F(Tune, LeavesAnOldTableWhereThereIsNoRoomForTheNewOne) {
  const std::string path = write("table.txt", "# old\n");
  // A disk that is full, as far as files go: over TCP ranks share no memory that counts.
  const test::ShellRun tuned = unisono("tune -n 2 -e 64 --budget-ms 0.1 --transport tcp -o " + path,
                                       "trap '' XFSZ; ulimit -f 1; ");
  EXPECT_EQ(tuned.status, 1);
  EXPECT_THAT(tuned.output, HasSubstr("unisono tune: --output: cannot write " + path));
  EXPECT_EQ(read(path), "# old\n");
}

TEST_F(Tune, WritesBehindALinkAndLeavesIt) {
  const std::string tune = "tune -n 2 -e 64 --budget-ms 0.1 --transport tcp -o " + file("link.txt");
  std::filesystem::create_symlink("target.txt", file("link.txt"));
  EXPECT_EQ(unisono(tune, "UNISONO_INTERFACE=192.0.2.1").status, 1);
  EXPECT_TRUE(std::filesystem::is_symlink(file("link.txt")));
  EXPECT_FALSE(std::filesystem::exists(file("target.txt")));
  for (const char* times : {"once", "again"}) {
    const test::ShellRun tuned = unisono(tune);
    ASSERT_EQ(tuned.status, 0) << times << ": " << tuned.output;
    EXPECT_TRUE(std::filesystem::is_symlink(file("link.txt"))) << times;
    EXPECT_FALSE(std::filesystem::is_symlink(file("target.txt"))) << times;
    EXPECT_THAT(read(file("target.txt")), HasSubstr("# collective")) << times;
  }
}

TEST_F(Tune, NamesTheWrongArgument) {
  const auto refuses = [](const std::string& arguments, const std::string& because) {
    const test::ShellRun tuned = unisono("tune " + arguments);
    EXPECT_EQ(tuned.status, 2) << arguments;
    EXPECT_THAT(tuned.output, HasSubstr(because)) << arguments;
  };
  refuses("-e 12X", "--maxbytes");
  refuses("-e 1T", "--maxbytes");
  refuses("-n 1", "--ranks");
  refuses("--transport pigeon", "--transport");
}

TEST_F(Tune, FilesThatAreMalformedStopEveryCommandWithTheLine) {
  const std::string path = write("table.txt", "# one\n\nall_reduce shm 2 2 own 1K ring - 0\n");
  for (const char* command :
       {"info --why all_reduce 1M", "perf all_reduce -n 2 -e 4 --timeout 30"}) {
    const test::ShellRun run = unisono(command, "UNISONO_TUNING=" + path);
    EXPECT_NE(run.status, 0) << command;
    EXPECT_THAT(run.output, AllOf(HasSubstr("UNISONO_TUNING=" + path), HasSubstr("line 3"),
                                  HasSubstr("bytes_max '1K'")))
        << command;
  }
}

Task task(std::size_t bytes, const std::string& algorithm, double seconds, Link link = Link::kShm) {
  return {link, Collective::kAllReduce, bytes, algorithm, seconds};
}

std::string rows_text(const std::vector<Task>& tasks) {
  std::string text;
  for (const auto& row : best_rows(tasks, 2, false)) text += algorithms::to_text(row) + "\n";
  return text;
}

TEST(TuneRows, TakeTheFastestAndMergeNeighbours) {
  EXPECT_EQ(rows_text({task(64, "native", 1), task(64, "ring", 2),          //
                       task(256, "native", 1), task(256, "ring", 2),        //
                       task(1024, "native", 2), task(1024, "ring", 1),      //
                       task(4096, "native", 2), task(4096, "ring", 1),      //
                       task(16384, "native", 2), task(16384, "ring", 3)}),  //
            "all_reduce shm 2 2 own 512 native auto 0\n"
            "all_reduce shm 2 2 own 8192 ring - 1048576\n"
            "all_reduce shm 2 2 own any native auto 0\n");
}

TEST(TuneRows, KeepTheDefaultWhereNothingIsClearlyFaster) {
  EXPECT_EQ(rows_text({task(64, "ring", 0.93), task(64, "native", 1), task(64, "one_shot", 0.92)}),
            "all_reduce shm 2 2 own any native auto 0\n");
}

TEST(TuneRows, LeaveSizesBeyondTheLargestPlanToTheDefaults) {
  EXPECT_EQ(rows_text({task(64, "ring", 1, Link::kTcp), task(64, "one_shot", 2, Link::kTcp)}),
            "all_reduce tcp 2 2 own 128 ring - 1048576\n");
}

TEST(TuneRows, IgnoreWhatWasNotMeasured) {
  EXPECT_EQ(rows_text({task(64, "native", kNever), task(64, "ring", kNever)}), "");
}

TEST(TuneMeasure, ATransportThatFailsIsNamedAndTheOthersAreMeasured) {
  std::vector<Task> tasks{task(64, "ring", kNever, Link::kUnix),
                          task(64, "none_of_them", kNever, Link::kTcp),
                          task(64, "native", kNever, Link::kShm)};
  const MeasureOptions options{.ranks = 2,
                               .seconds_per_task = 0.001,
                               .progress = [](std::size_t, std::string_view) {},
                               .progress_ends = [] {}};
  const Status status = measure(tasks, options);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), testing::StartsWith("transport tcp: "));
  EXPECT_LT(tasks[0].seconds, kNever);
  EXPECT_EQ(tasks[1].seconds, kNever);
  EXPECT_LT(tasks[2].seconds, kNever);
}

TEST(TuneTasks, CoverEveryAlgorithmOnce) {
  const Link links[]{Link::kShm, Link::kTcp};
  const auto tasks = list_tasks(links, 4, list_sizes(64 << 10));
  const auto count = [&](auto condition) {
    return std::count_if(tasks.begin(), tasks.end(), condition);
  };
  EXPECT_EQ(count([](const Task& t) { return t.algorithm == "native" && t.link == Link::kTcp; }),
            0);
  EXPECT_EQ(count([](const Task& t) {
              return t.algorithm == "native" && t.collective == Collective::kAllReduce &&
                     t.bytes == 65536;
            }),
            1);
  EXPECT_EQ(count([](const Task& t) { return t.collective == Collective::kBarrier; }), 3);
}

}  // namespace
}  // namespace unisono::tune
