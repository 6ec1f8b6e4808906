// Where a record lies, and that it outlives who wrote it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <latch>
#include <optional>
#include <thread>

#include "base/memfd.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/recorder_record.h"

namespace unisono::recorder::test {
namespace {

using testing::HasSubstr;

Result<RankRecord> read_file(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return read_record(file.get(), path);
}

TEST(RecordMemory, AFileOutlivesItsRank) {
  const unisono::test::TemporaryFolder folder;
  {
    const auto recorder =
        Recorder::open({.setting = {.folder = folder.path()}}, {"a/b", 3, 4, "host"});
    ASSERT_TRUE(recorder) << recorder.error().message();
    CallRecorder calls(recorder->get(), 1);
    calls.open(4, 3);
    calls.begin(all_reduce(8));
  }
  const std::string path = folder / "a_b-3.record";
  const Result<RankRecord> read = read_file(path);
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->calls.at(0).sequence(), 8u);
  struct stat facts {};
  ASSERT_EQ(::stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
}

TEST(RecordMemory, AFileOfTheSameNameIsReplacedAndNeverWrittenTo) {
  const unisono::test::TemporaryFolder folder;
  const std::string other = folder / "other";
  std::ofstream(other) << "kept";
  ASSERT_EQ(::symlink(other.c_str(), (folder / "job-0.record").c_str()), 0);
  const auto recorder =
      Recorder::open({.setting = {.folder = folder.path()}}, {"job", 0, 1, "host"});
  ASSERT_TRUE(recorder) << recorder.error().message();
  std::string text;
  std::ifstream(other) >> text;
  EXPECT_EQ(text, "kept");
  EXPECT_TRUE(read_file(folder / "job-0.record"));
}

TEST(RecordMemory, ADirectoryThatIsNotThereIsMadeForThisUserAlone) {
  const unisono::test::TemporaryFolder folder;
  for (const int rank : {0, 1}) {
    const auto recorder =
        Recorder::open({.setting = {.folder = folder / "new"}}, {"job", rank, 2, "host"});
    ASSERT_TRUE(recorder) << recorder.error().message();
  }
  EXPECT_EQ(std::filesystem::status(folder / "new").permissions(),
            std::filesystem::perms::owner_all);
}

TEST(RecordMemory, ADirectoryThatCannotBeUsedIsNamed) {
  const unisono::test::TemporaryFolder folder;
  std::ofstream(folder / "file") << "x";
  for (const char* name : {"none/deeper", "file"}) {
    const auto recorder =
        Recorder::open({.setting = {.folder = folder / name}}, {"job", 0, 1, "host"});
    ASSERT_FALSE(recorder);
    EXPECT_THAT(recorder.error().message(), HasSubstr("UNISONO_RECORDER=" + (folder / name)));
  }
}

TEST(RecordMemory, WhereItCannotBeNoTraceIsLeft) {
  const unisono::test::TemporaryFolder folder;
  const RecordPlace place{.setting = {.folder = folder / "none/deeper"},
                          .trace_folder = folder.path()};
  ASSERT_FALSE(Recorder::open(place, {"job", 0, 1, "host"}));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

// What a launcher announces, a rank takes, and the launcher reads afterwards.
TEST(RecordMemory, OfALauncherIsTakenByOneRankAtATime) {
  const Result<UniqueFd> memory = make_sealed_memory();
  ASSERT_TRUE(memory);
  RecordPlace place;
  ASSERT_TRUE(parse_announcement(announce(memory->get()), &place.handed_fd, &place.inode));
  ASSERT_EQ(::fcntl(memory->get(), F_SETFD, 0), 0);
  EXPECT_EQ(read_record(memory->get(), "").error().code(), ErrorCode::kNotMember);
  auto first = Recorder::open(place, {"first", 0, 1, "host"});
  ASSERT_TRUE(first);
  const auto second = Recorder::open(place, {"second", 0, 1, "host"});  // has memory of its own
  ASSERT_TRUE(second);
  EXPECT_TRUE((*second)->is_on());
  EXPECT_EQ(read_record(memory->get(), "")->job, "first");
  first->reset();
  const auto third = Recorder::open(place, {"third", 0, 1, "host"});
  ASSERT_TRUE(third);
  EXPECT_EQ(read_record(memory->get(), "")->job, "third");
  EXPECT_EQ(::fcntl(memory->get(), F_GETFD), FD_CLOEXEC);
}

// A program may mend its setting and join again: the launcher would read nothing of it.
TEST(RecordMemory, IsNotTakenWhereATraceCannotBe) {
  const unisono::test::TemporaryFolder folder;
  std::ofstream(folder / "file") << "x";
  const Result<UniqueFd> memory = make_sealed_memory();
  ASSERT_TRUE(memory);
  RecordPlace launched, filed{.setting = {.folder = folder / "records"}};
  ASSERT_TRUE(parse_announcement(announce(memory->get()), &launched.handed_fd, &launched.inode));
  for (RecordPlace* const place : {&launched, &filed}) {
    place->trace_folder = folder / "file";
    EXPECT_FALSE(Recorder::open(*place, {"job", 0, 1, "host"}));
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "records"));
  launched.trace_folder.clear();
  const auto recorder = Recorder::open(launched, {"job", 0, 1, "host"});
  ASSERT_TRUE(recorder);
  EXPECT_TRUE(read_record(memory->get(), ""));
}

// Ranks that one process has started were handed the same memory, and may join at once.
TEST(RecordMemory, OfALauncherIsTakenByOneOfManyAtOnce) {
  constexpr std::size_t kTakers = 8;
  for (int round = 0; round < 20; ++round) {
    const Result<UniqueFd> memory = make_sealed_memory();
    ASSERT_TRUE(memory);
    RecordPlace place;
    ASSERT_TRUE(parse_announcement(announce(memory->get()), &place.handed_fd, &place.inode));
    std::vector<std::optional<RecordMemory>> taken(kTakers);
    std::latch all_here(kTakers);
    std::vector<std::thread> threads;
    for (auto& each : taken) {
      threads.emplace_back([&] {
        all_here.arrive_and_wait();
        Result<RecordMemory> made = RecordMemory::make(place, "name");
        if (made) each.emplace(std::move(*made));
      });
    }
    for (std::thread& thread : threads) thread.join();
    int owners = 0;
    for (auto& each : taken) {
      ASSERT_TRUE(each);
      std::memset(each->data() + kEntriesAt, 1, 1);
      char seen = 0;
      ASSERT_EQ(::pread(memory->get(), &seen, 1, static_cast<off_t>(kEntriesAt)), 1);
      owners += seen;
      std::memset(each->data() + kEntriesAt, 0, 1);
    }
    EXPECT_EQ(owners, 1);
  }
}

// A number that means something else in this process is left alone.
TEST(RecordMemory, ThatWasNotHandedToThisProcessIsNotTouched) {
  const Result<UniqueFd> sealed = make_sealed_memory();
  const UniqueFd plain = make_memfd("plain", MFD_CLOEXEC);
  ASSERT_TRUE(sealed);
  ASSERT_EQ(::ftruncate(plain.get(), static_cast<off_t>(kRecordBytes)), 0);
  struct stat facts {};
  ASSERT_EQ(::fstat(plain.get(), &facts), 0);
  const RecordPlace places[]{{.handed_fd = sealed->get(), .inode = 1},
                             {.handed_fd = plain.get(), .inode = facts.st_ino},
                             {.handed_fd = 1'000'000, .inode = 1}};
  for (const RecordPlace& place : places) {
    const auto recorder = Recorder::open(place, {"job", 0, 1, "host"});
    ASSERT_TRUE(recorder);
    EXPECT_TRUE((*recorder)->is_on());
  }
  EXPECT_FALSE(read_record(sealed->get(), ""));
  EXPECT_FALSE(read_record(plain.get(), ""));
}

TEST(RecordMemory, AnnouncementsThatAreNoneAreIgnored) {
  for (const char* text : {"", "3", "3:", ":4", "-1:4", "3:4x", "x:4", "3 :4", "99999999999:4"}) {
    int fd = -1;
    std::uint64_t inode = 0;
    EXPECT_FALSE(parse_announcement(text, &fd, &inode)) << text;
    EXPECT_EQ(fd, -1) << text;
  }
}

}  // namespace
}  // namespace unisono::recorder::test
