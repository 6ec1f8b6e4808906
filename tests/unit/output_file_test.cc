// What a user may name as the file to write: pipes, files of others, folders that are none.
#include "base/output_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "base/unique_fd.h"
#include "tests/support/temporary_folder.h"

namespace unisono::test {
namespace {

using testing::HasSubstr;

std::string written_in(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(OutputFile, LeavesAPipeToItsReaderUntilThereIsText) {
  const TemporaryFolder folder;
  const std::string path = folder / "pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const UniqueFd reader(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_TRUE(reader);
  EXPECT_TRUE(check_output(path));
  pollfd end{.fd = reader.get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&end, 1, 0), 0) << "a writer came and went";
  EXPECT_TRUE(write_output(path, "text"));
  char text[8] = {};
  EXPECT_EQ(read(reader.get(), text, sizeof text), 4);
  EXPECT_STREQ(text, "text");
}

TEST(OutputFile, IsRefusedWhereNoneCanBe) {
  const TemporaryFolder folder;
  ASSERT_TRUE(write_output(folder / "file", "a program"));
  ASSERT_EQ(chmod((folder / "file").c_str(), 0700), 0);
  EXPECT_THAT(check_output(folder / "file/below").message(), HasSubstr("Not a directory"));
  EXPECT_THAT(check_output(folder / "file/").message(), HasSubstr("Not a directory"));
  EXPECT_THAT(check_output(folder / "none/below").message(), HasSubstr("No such file"));
  EXPECT_THAT(check_output(folder.path()).message(), HasSubstr("Is a directory"));
  EXPECT_THAT(check_output("").message(), HasSubstr("No such file"));
  EXPECT_TRUE(check_output(folder / "file"));
  EXPECT_EQ(written_in(folder / "file"), "a program");
}

TEST(OutputFile, OfALongNameIsRefusedBeforeTheWorkOrWritten) {
  const TemporaryFolder folder;
  for (const std::size_t length : {234u, 235u, 255u}) {
    const std::string path = folder / std::string(length, 'x');
    EXPECT_EQ(check_output(path).ok(), length == 234) << length;
    EXPECT_EQ(write_output(path, "new").ok(), length == 234) << length;
    // What is there can be written in place.
    std::ofstream(path) << "old";
    EXPECT_TRUE(check_output(path)) << length;
    EXPECT_TRUE(write_output(path, "new")) << length;
    EXPECT_EQ(written_in(path), "new") << length;
  }
}

TEST(OutputFile, KeepsItsOtherNames) {
  const TemporaryFolder folder;
  ASSERT_TRUE(write_output(folder / "file", "old"));
  ASSERT_EQ(link((folder / "file").c_str(), (folder / "other").c_str()), 0);
  EXPECT_TRUE(write_output(folder / "file", "new"));
  EXPECT_EQ(written_in(folder / "other"), "new");
}

TEST(OutputFile, KeepsItsAccessList) {
  struct Entry {
    std::uint16_t tag, rights;
    std::uint32_t id;
  };
  struct AccessList {
    std::uint32_t version = 2;
    Entry entries[5] = {{1, 6, ~0u}, {2, 6, 4321}, {4, 0, ~0u}, {16, 6, ~0u}, {32, 0, ~0u}};
  } given;
  constexpr const char* kName = "system.posix_acl_access";
  const TemporaryFolder folder;
  const std::string path = folder / "file";
  ASSERT_TRUE(write_output(path, "old"));
  if (setxattr(path.c_str(), kName, &given, sizeof given, 0) != 0) {
    GTEST_SKIP() << "no access lists here: " << std::strerror(errno);
  }
  EXPECT_TRUE(write_output(path, "new"));
  EXPECT_EQ(written_in(path), "new");
  AccessList found;
  found.entries[1].id = 0;
  EXPECT_EQ(getxattr(path.c_str(), kName, &found, sizeof found), ssize_t{sizeof given});
  EXPECT_EQ(found.entries[1].id, 4321u);
}

// A user cannot give away a new file, but may write into another's.
TEST(OutputFile, IsWrittenInPlaceWhereItsOwnerWouldChange) {
  if (geteuid() != 0) GTEST_SKIP() << "files of other users need root";
  const TemporaryFolder folder;
  ASSERT_EQ(chmod(folder.path().c_str(), 0777), 0);
  const std::string path = folder / "file";
  ASSERT_TRUE(write_output(path, "old"));
  ASSERT_EQ(chown(path.c_str(), 1234, 5678), 0);
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool is_user = setgid(4321) == 0 && setuid(4321) == 0;
    _exit(is_user && check_output(path) && write_output(path, "new") ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  struct stat facts {};
  ASSERT_EQ(stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_uid, 1234u);
  EXPECT_EQ(facts.st_mode & 07777, 0666u);
  EXPECT_EQ(written_in(path), "new");
}

}  // namespace
}  // namespace unisono::test
