// A file that is replaced as a whole, and what is left where it cannot be.
#include "base/replace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/support/temporary_folder.h"

namespace unisono::test {
namespace {

using testing::HasSubstr;

std::string rest_of(std::istream& file) {
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string text_in(const std::string& path) {
  std::ifstream file(path);
  return rest_of(file);
}

std::ptrdiff_t files_in(const TemporaryFolder& folder) {
  return std::distance(std::filesystem::directory_iterator(folder.path()), {});
}

struct stat facts_of_file(const std::string& path) {
  struct stat facts {};
  stat(path.c_str(), &facts);
  return facts;
}

/// No file grows beyond `bytes` while this lives.
class SizeLimit {
 public:
  explicit SizeLimit(rlim_t bytes) : before_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &limit_);
    const rlimit tight{bytes, limit_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &tight);
  }
  ~SizeLimit() {
    setrlimit(RLIMIT_FSIZE, &limit_);
    std::signal(SIGXFSZ, before_);
  }
  SizeLimit(const SizeLimit&) = delete;

 private:
  void (*before_)(int);
  rlimit limit_{};
};

TEST(ReplaceFile, GivesEveryReaderOneTextOrTheOther) {
  const TemporaryFolder folder;
  const std::string path = folder / "file";
  ASSERT_TRUE(replace_file(path, "the old text", 0600));
  std::ifstream reader(path);
  EXPECT_EQ(reader.get(), 't');
  ASSERT_TRUE(replace_file(path, "a new one", 0600));
  EXPECT_EQ(rest_of(reader), "he old text");
  EXPECT_EQ(text_in(path), "a new one");
  EXPECT_EQ(files_in(folder), 1);
}

TEST(ReplaceFile, LeavesTheOldTextWhereThereIsNoRoomForTheNewOne) {
  const TemporaryFolder folder;
  const std::string path = folder / "file";
  ASSERT_TRUE(replace_file(path, "old", 0600));
  Status status;
  {
    const SizeLimit limit(100);
    status = replace_file(path, std::string(1000, 'x'), 0600);
  }
  EXPECT_EQ(status.code(), ErrorCode::kSystem);
  EXPECT_THAT(status.message(), HasSubstr("cannot write " + path));
  EXPECT_EQ(text_in(path), "old");
  EXPECT_EQ(files_in(folder), 1);
}

TEST(ReplaceFile, AlikeHasTheModeOfTheOldOneWhateverTheUmask) {
  const TemporaryFolder folder;
  const std::string path = folder / "file";
  const mode_t before = umask(022);
  EXPECT_TRUE(replace_file_alike(path, "new"));
  EXPECT_EQ(facts_of_file(path).st_mode & 07777, 0644u);
  for (const mode_t mode : {0664u, 0600u, 0444u}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    EXPECT_TRUE(replace_file_alike(path, "newer"));
    EXPECT_EQ(facts_of_file(path).st_mode & 07777, mode);
  }
  umask(before);
  EXPECT_EQ(text_in(path), "newer");
}

TEST(ReplaceFile, AlikeLeavesAFileToItsOwner) {
  if (geteuid() != 0) GTEST_SKIP() << "files of other users need root";
  const TemporaryFolder folder;
  const std::string path = folder / "file";
  ASSERT_TRUE(replace_file_alike(path, "old"));
  ASSERT_EQ(chown(path.c_str(), 1234, 5678), 0);
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  EXPECT_TRUE(replace_file_alike(path, "new"));
  const struct stat facts = facts_of_file(path);
  EXPECT_EQ(facts.st_uid, 1234u);
  EXPECT_EQ(facts.st_gid, 5678u);
  EXPECT_EQ(facts.st_mode & 07777, 0640u);
  EXPECT_EQ(text_in(path), "new");
}

}  // namespace
}  // namespace unisono::test
