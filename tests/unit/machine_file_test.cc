// Files of facts: whatever is wrong with them, nothing is known, and it does no harm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "machine/facts_file.h"
#include "tests/support/other_user.h"
#include "tests/support/temporary_folder.h"

namespace unisono::machine {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const Identity kHere{"A processor", "6.18.5", 2, 0, 2, 2, "a-host", {1, 1}};

TrialFacts facts_of_message(std::uint32_t ring, std::uint32_t lent) {
  TrialFacts facts{};
  facts.messages[0] = {ring, lent};
  return facts;
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

mode_t mode_of(const std::string& path) {
  struct stat facts {};
  EXPECT_EQ(stat(path.c_str(), &facts), 0) << path;
  return facts.st_mode & 07777;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  return names;
}

TEST(FactsFile, IsReadByTheNext) {
  const TemporaryFolder home;
  const Folder folder(home / ".cache/unisono", home.path());
  const Result<TrialFacts> none = read_facts(folder, kHere);
  ASSERT_TRUE(none) << none.error().message();
  EXPECT_FALSE(knows_any(*none));
  ASSERT_TRUE(add_facts(folder, kHere, facts_of_message(3, 2)));
  const Result<TrialFacts> facts = read_facts(folder, kHere);
  ASSERT_TRUE(facts) << facts.error().message();
  EXPECT_EQ(*facts, facts_of_message(3, 2));
  EXPECT_EQ(mode_of(folder.path), 0700u);
  EXPECT_EQ(mode_of(path_of(folder.path, kHere)), 0600u);
}

TEST(FactsFile, KeepsWhatOthersLearned) {
  const TemporaryFolder folder;
  ASSERT_TRUE(add_facts(folder.path(), kHere, facts_of_message(3, 2)));
  TrialFacts pieces{};
  pieces.pieces[1] = {7, 8};
  ASSERT_TRUE(add_facts(folder.path(), kHere, pieces));
  TrialFacts both = facts_of_message(3, 2);
  learn(both, pieces);
  EXPECT_EQ(*read_facts(folder.path(), kHere), both);
  EXPECT_THAT(names_in(folder.path()), SizeIs(1));
}

TEST(FactsFile, IsOfOneIdentity) {
  const TemporaryFolder folder;
  ASSERT_TRUE(add_facts(folder.path(), kHere, facts_of_message(3, 2)));
  std::vector<Identity> others(9, kHere);
  others[0].processor = "Another one";
  others[1].kernel = "6.18.6";
  others[2].cpus = 4;
  others[3].quota = 1.5;
  others[4].ranks = 3;
  others[5].processes = 1;
  others[6].host = "another-host";
  others[7].spread.caches = 2;
  others[8].spread.nodes = 2;
  for (const Identity& other : others) {
    EXPECT_NE(path_of(folder.path(), other), path_of(folder.path(), kHere));
    EXPECT_FALSE(knows_any(*read_facts(folder.path(), other)));
    // What lies there under another's name.
    fs::copy_file(path_of(folder.path(), kHere), path_of(folder.path(), other));
    const Result<TrialFacts> foreign = read_facts(folder.path(), other);
    ASSERT_FALSE(foreign);
    EXPECT_THAT(foreign.error().message(), HasSubstr("another machine"));
  }
}

TEST(FactsFile, ThatIsDamagedIsWrittenOver) {
  const TemporaryFolder folder;
  ASSERT_TRUE(add_facts(folder.path(), kHere, facts_of_message(3, 2)));
  const std::string path = path_of(folder.path(), kHere);
  const std::string whole = read_file(path);
  for (const std::string& text : {whole.substr(0, whole.size() / 2), whole + "x", std::string("x"),
                                  std::string("unisono machine 1\n"), std::string(1 << 20, '\0')}) {
    write_file(path, text);
    const Result<TrialFacts> damaged = read_facts(folder.path(), kHere);
    ASSERT_FALSE(damaged);
    EXPECT_THAT(damaged.error().message(), HasSubstr(path));
    ASSERT_TRUE(add_facts(folder.path(), kHere, facts_of_message(5, 4)));
    EXPECT_EQ(*read_facts(folder.path(), kHere), facts_of_message(5, 4));
  }
}

TEST(FactsFile, IsNoLinkPipeOrFolder) {
  const TemporaryFolder folder, elsewhere;
  const std::string path = path_of(folder.path(), kHere);
  ASSERT_TRUE(add_facts(elsewhere.path(), kHere, facts_of_message(3, 2)));
  const std::string target = path_of(elsewhere.path(), kHere);
  const std::string before = read_file(target);
  fs::create_symlink(target, path);
  EXPECT_FALSE(read_facts(folder.path(), kHere));
  // The link goes, and not what it leads to.
  ASSERT_TRUE(add_facts(folder.path(), kHere, facts_of_message(9, 8)));
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(path)));
  EXPECT_EQ(read_file(target), before);
  fs::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_FALSE(read_facts(folder.path(), kHere));
  fs::remove(path);
  fs::create_directory(path);
  EXPECT_FALSE(read_facts(folder.path(), kHere));
  EXPECT_FALSE(add_facts(folder.path(), kHere, facts_of_message(9, 8)));
  EXPECT_THAT(names_in(folder.path()), SizeIs(1));  // nothing half done is left
}

TEST(FactsFile, ThatCannotBeWrittenIsAnErrorThatSaysWhere) {
  const TemporaryFolder folder;
  write_file(folder / "file", "");
  const Status below_a_file = add_facts(folder / "file/below", kHere, facts_of_message(3, 2));
  ASSERT_FALSE(below_a_file);
  EXPECT_THAT(below_a_file.message(), HasSubstr(folder / "file/below"));
  // Of a folder that the user named nothing is made but itself.
  EXPECT_FALSE(add_facts(folder / "one/two", kHere, facts_of_message(3, 2)));
  EXPECT_FALSE(add_facts(folder / "one/two/three", kHere, facts_of_message(3, 2)));
  EXPECT_THAT(find_facts(folder / "one"), IsEmpty());
}

TEST(FactsFile, InAFolderForReadingStays) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write anywhere";
  const TemporaryFolder folder;
  ASSERT_TRUE(add_facts(folder.path(), kHere, facts_of_message(3, 2)));
  ASSERT_EQ(chmod(folder.path().c_str(), 0500), 0);
  EXPECT_FALSE(add_facts(folder.path(), kHere, facts_of_message(9, 8)));
  EXPECT_EQ(*read_facts(folder.path(), kHere), facts_of_message(3, 2));
  ASSERT_EQ(chmod(folder.path().c_str(), 0700), 0);
}

TEST(FactsFile, IsWholeWhileSeveralWriteIt) {
  const TemporaryFolder folder;
  ASSERT_TRUE(add_facts(folder.path(), kHere, facts_of_message(1, 1)));
  std::vector<std::thread> writers;
  for (std::uint32_t writer = 1; writer <= 3; ++writer) {
    writers.emplace_back([&, writer] {
      for (int i = 0; i < 50; ++i) {
        EXPECT_TRUE(add_facts(folder.path(), kHere, facts_of_message(writer, writer)));
      }
    });
  }
  for (int i = 0; i < 200; ++i) {
    const Result<TrialFacts> facts = read_facts(folder.path(), kHere);
    ASSERT_TRUE(facts) << facts.error().message();
    EXPECT_EQ(facts->messages[0][0], facts->messages[0][1]);
    EXPECT_TRUE(knows_any(*facts));
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_THAT(names_in(folder.path()), SizeIs(1));
}

// In a folder that users share each has a file of its own, and nobody takes away another's.
TEST(FactsFile, IsOfOneUser) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become other users";
  const TemporaryFolder shared;
  fs::permissions(shared.path(), fs::perms::all | fs::perms::sticky_bit);
  for (int files = 0; files < 90; ++files) {
    write_file(shared / ("machine-" + std::string(14, 'a') + std::to_string(10 + files)), "");
  }
  ASSERT_TRUE(add_facts(shared.path(), kHere, facts_of_message(3, 2)));
  const std::size_t of_root = names_in(shared.path()).size();
  test::end(test::as_another_user([&] {
    static_cast<void>(add_facts(shared.path(), kHere, facts_of_message(7, 1)));
    static_cast<void>(add_facts(shared.path(), kHere, facts_of_message(7, 1)));
  }));
  EXPECT_EQ(*read_facts(shared.path(), kHere), facts_of_message(3, 2)) << "root's own";
  EXPECT_THAT(names_in(shared.path()), SizeIs(of_root + 1));
}

TEST(FactsFile, AreFoundInTheirFolder) {
  const TemporaryFolder folder;
  Identity other = kHere;
  other.ranks = 4;
  ASSERT_TRUE(add_facts(folder.path(), kHere, facts_of_message(3, 2)));
  ASSERT_TRUE(add_facts(folder.path(), other, facts_of_message(5, 4)));
  write_file(folder / "machine-0123", "nonsense");
  write_file(folder / "notes", "nonsense");
  fs::copy_file(path_of(folder.path(), kHere), path_of(folder.path(), kHere) + ".new-0123");
  const std::vector<FoundFacts> found = find_facts(folder.path());
  ASSERT_THAT(found, SizeIs(2));
  for (const FoundFacts& each : found) {
    EXPECT_EQ(each.path, path_of(folder.path(), each.facts.identity));
    EXPECT_GE(each.age_seconds, 0);
  }
  EXPECT_THAT(find_facts(folder / "nowhere"), IsEmpty());
}

TEST(FactsFile, AreFoundInAFolderOfAnyName) {
  const TemporaryFolder around;
  const std::string folder = around / "a.new-folder";
  ASSERT_TRUE(add_facts(folder, kHere, facts_of_message(3, 2)));
  EXPECT_THAT(find_facts(folder), SizeIs(1));
}

void make_older(const std::string& path, int hours) {
  fs::last_write_time(path, fs::last_write_time(path) - std::chrono::hours(hours));
}

TEST(FactsFile, AreNotTooMany) {
  const TemporaryFolder folder;
  Identity each = kHere;
  std::vector<std::string> paths;
  for (int file = 0; file < static_cast<int>(kFilesMax) + 3; ++file) {
    each.ranks = 10 + file;
    paths.push_back(path_of(folder.path(), each));
    write_file(paths.back(), "nonsense");
    make_older(paths.back(), 1 + file);
  }
  write_file(folder / "machine-learning", "somebody's");
  make_older(folder / "machine-learning", 1000);
  ASSERT_TRUE(add_facts(folder.path(), kHere, facts_of_message(3, 2)));
  EXPECT_THAT(names_in(folder.path()), SizeIs(kFilesMax + 1));
  EXPECT_TRUE(fs::exists(path_of(folder.path(), kHere)));
  EXPECT_TRUE(fs::exists(folder / "machine-learning"));
  for (std::size_t file = 0; file < paths.size(); ++file) {
    EXPECT_EQ(fs::exists(paths[file]), file < kFilesMax - 1) << file;
  }
}

TEST(FactsFile, TakesAwayWhatWasNeverFinished) {
  const TemporaryFolder folder;
  const std::string path = path_of(folder.path(), kHere);
  write_file(path + ".new-0123", "a part");
  write_file(path + ".new-4567", "another part");
  make_older(path + ".new-0123", 2);
  ASSERT_TRUE(add_facts(folder.path(), kHere, facts_of_message(3, 2)));
  EXPECT_FALSE(fs::exists(path + ".new-0123"));
  EXPECT_TRUE(fs::exists(path + ".new-4567")) << "somebody may be writing it";
}

TEST(Folder, OfNobodysChoiceIsWithinOneOfThisUser) {
  const TemporaryFolder home;
  EXPECT_TRUE(check_folder({home / ".cache/unisono", home.path()}));
  EXPECT_FALSE(check_folder({home / "none/.cache/unisono", home / "none"}));
  write_file(home / "file", "");
  EXPECT_FALSE(check_folder({home / "file/unisono", home / "file"}));
  EXPECT_FALSE(check_folder({home / "file", ""})) << "not even where the user named it";
  std::string foreign = "/";
  if (geteuid() == 0) {
    foreign = home / "foreign";
    fs::create_directory(foreign);
    ASSERT_EQ(chown(foreign.c_str(), 65534, 65534), 0);
  }
  const Folder of_another(foreign + "/unisono", foreign);
  const Status refused = check_folder(of_another);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.message(), HasSubstr(foreign + " is no folder of this user's"));
  EXPECT_THAT(refused.message(), HasSubstr("UNISONO_CACHE"));
  EXPECT_FALSE(read_facts(of_another, kHere));
  EXPECT_FALSE(add_facts(of_another, kHere, facts_of_message(3, 2)));
  EXPECT_THAT(find_facts(of_another), IsEmpty());
  EXPECT_FALSE(fs::exists(of_another.path));
  EXPECT_TRUE(check_folder(of_another.path)) << "the user named it";
}

// As add_facts() finds.
TEST(Folder, CanBeWrittenOrNot) {
  const TemporaryFolder home;
  write_file(home / "file", "");
  fs::create_directory(home / "closed");
  fs::permissions(home / "closed", fs::perms::owner_read | fs::perms::owner_exec);
  const std::vector<Folder> folders{{home.path()},        {home / "new"},
                                    {home / "no/folder"}, {home / ".cache/unisono", home.path()},
                                    {home / "file"},      {home / "file/unisono", home.path()},
                                    {home / "closed"}};
  std::vector<bool> can, could;
  for (const Folder& folder : folders) {
    can.push_back(can_write(folder));
    could.push_back(add_facts(folder, kHere, facts_of_message(3, 2)).ok());
  }
  EXPECT_EQ(can, could);
  EXPECT_THAT(can, testing::ElementsAre(true, true, false, true, false, false, geteuid() == 0));
}

TEST(Folder, KnowsNetworkFileSystems) {
  for (const std::int64_t type : {0x6969L, 0x0bd00bd0L, 0x65735546L, 0xff534d42L, 0x47504653L}) {
    EXPECT_TRUE(is_network_file_system(type)) << type;
  }
  EXPECT_TRUE(is_network_file_system(static_cast<std::int32_t>(0xff534d42)));
  for (const std::int64_t type : {0xef53L, 0x58465342L, 0x9123683eL, 0x01021994L, 0x794c7630L}) {
    EXPECT_FALSE(is_network_file_system(type)) << type;
  }
}

}  // namespace
}  // namespace unisono::machine
