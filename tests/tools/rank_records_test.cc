// What the launcher tells of the records that it holds, of ranks that are made here.
#include "tools/run/rank_records.h"

#include <dirent.h>
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <memory>

#include "tests/support/temporary_folder.h"
#include "tests/unit/recorder_record.h"

namespace unisono::run {
namespace {

using recorder::Life;
using recorder::test::all_reduce;
using testing::HasSubstr;
using testing::StartsWith;

constexpr int kRanks = 4;

using ReadEntry = dirent* (*)(DIR*);

// How many entries readdir() gives before it fails; -1: all.
int readable_entries = -1;

dirent* read_entry(ReadEntry read, DIR* folder) {
  if (readable_entries == 0) {
    errno = EIO;
    return nullptr;
  }
  if (readable_entries > 0) --readable_entries;
  return read(folder);
}

// The ranks of a launcher, each in one of its jobs.
class LaunchedRanks : public testing::Test {
 protected:
  // In the place of the process before; it has made so many calls, and is in the next one.
  void join(int local_rank, const std::string& job, int rank, int size, std::uint64_t calls) {
    constexpr std::string_view kName = "UNISONO_RECORDER_MEMORY=";
    std::vector<std::string> environment;
    records.announce(local_rank, &environment);
    ASSERT_THAT(environment, testing::ElementsAre(StartsWith(kName)));
    recorder::RecordPlace place;
    ASSERT_TRUE(recorder::parse_announcement(environment[0].substr(kName.size()), &place.handed_fd,
                                             &place.inode));
    Process& process = processes[static_cast<std::size_t>(local_rank)];
    process.world.reset();
    process.recorder.reset();
    auto opened = recorder::Recorder::open(place, {job, rank, size, "host"});
    ASSERT_TRUE(opened);
    process.recorder = std::move(*opened);
    process.world = std::make_unique<recorder::CallRecorder>(process.recorder.get(), 0);
    process.world->open(size, rank);
    for (std::uint64_t i = 0; i < calls; ++i) {
      process.world->end(process.world->begin(all_reduce(i)), Status());
    }
    process.world->begin(all_reduce(calls));
  }
  std::string verdict(int gone = -1) {
    std::vector<Life> lives(kRanks, Life::kUnknown);
    if (gone >= 0) lives[static_cast<std::size_t>(gone)] = Life::kGone;
    return records.verdict(lives);
  }

  RankRecords records{kRanks, {}};
  struct Process {
    std::unique_ptr<recorder::Recorder> recorder;
    std::unique_ptr<recorder::CallRecorder> world;
  };
  std::array<Process, kRanks> processes;
};

TEST_F(LaunchedRanks, AFailedJobIsJudgedThoughAnotherOneBeganLater) {
  for (const int rank : {0, 1}) join(rank, "first", rank, 2, 1);
  for (const int rank : {0, 1}) join(2 + rank, "second", rank, 2, 2);
  EXPECT_THAT(verdict(1), HasSubstr("rank 1 stopped first: it was ended in all_reduce(count 4, "
                                    "float32, sum) (operation 1)"));
  EXPECT_THAT(verdict(2), HasSubstr("rank 0 stopped first: it was ended in all_reduce(count 4, "
                                    "float32, sum) (operation 2)"));
}

// Ranks 0 and 1 may be in the second job as well, by records of their own.
TEST_F(LaunchedRanks, NobodyIsToBlameInAJobThatMayHaveGrownIntoAnother) {
  for (const int rank : {0, 1}) join(rank, "first", rank, 2, 1);
  join(2, "second", 2, 3, 1);
  EXPECT_EQ(verdict(1), "");
  EXPECT_THAT(verdict(2), HasSubstr("rank 2 stopped first: it was ended in all_reduce"));
}

TEST_F(LaunchedRanks, ARecordIsItsPredecessorsUntilTheRankThatWasStartedAgainJoins) {
  for (const int rank : {0, 1, 2, 3}) join(rank, "job", rank, 4, 1);
  EXPECT_EQ(verdict(), "");
  records.on_start(2, true);
  EXPECT_THAT(verdict(), HasSubstr("rank 2 stopped first: it was ended in all_reduce"));
  join(2, "job", 2, 4, 1);
  EXPECT_EQ(verdict(), "");
}

TEST_F(LaunchedRanks, RecordsOfBeforeARestartOfAllTellNothing) {
  for (const int rank : {0, 1, 2, 3}) join(rank, "before", rank, 4, 1);
  for (const int rank : {0, 1, 2, 3}) records.on_start(rank, false);
  EXPECT_EQ(verdict(3), "");
  for (const int rank : {0, 1}) join(rank, "after", rank, 4, 0);
  EXPECT_THAT(verdict(1), HasSubstr("rank 1 stopped first: it was ended in all_reduce(count 4, "
                                    "float32, sum) (operation 0)"));
}

TEST(RecordsInAFolder, TellNothingWhereItCannotBeReadToItsEnd) {
  const unisono::test::TemporaryFolder folder;
  const RankRecords records(kRanks, {"UNISONO_RECORDER=" + folder.path()});
  std::ofstream(folder / "other");
  readable_entries = 3;  // "." and ".." are two
  EXPECT_EQ(records.verdict(std::vector<Life>(kRanks, Life::kGone)), "");
  EXPECT_EQ(readable_entries, 0);
  readable_entries = -1;
}

}  // namespace
}  // namespace unisono::run

// In the place of the system's.
extern "C" dirent* readdir(DIR* folder) {
  namespace test = unisono::run;
  static const auto read = reinterpret_cast<test::ReadEntry>(::dlsym(RTLD_NEXT, "readdir"));
  return test::read_entry(read, folder);
}
