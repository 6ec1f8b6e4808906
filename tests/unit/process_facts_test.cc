// What is read of processes in /proc, and whether one that is known by its name has ended.
#include "base/process_facts.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

namespace unisono {
namespace {

TEST(ProcessFacts, AreFoundBehindAnyName) {
  const std::string rest = " T 7 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 4711 23 24";
  for (const char* name : {"1 (sh)", "1 (a) b) R 5)", "1 ()"}) {
    const ProcessFacts facts = parse_process_facts(name + rest);
    EXPECT_EQ(facts.state, 'T') << name;
    EXPECT_EQ(facts.parent, 7) << name;
    EXPECT_EQ(facts.start, 4711u) << name;
  }
  for (const char* text : {"", "1 (sh", "1 (sh)", "1 (sh) R 1 2"}) {
    EXPECT_EQ(parse_process_facts(text).start, 0u) << text;
  }
  EXPECT_EQ(facts_of_process(getpid()).parent, getppid());
  EXPECT_EQ(facts_of_process(-1).state, 0);
}

TEST(ProcessFacts, OfAnEndedFirstThreadAreNoCorpsesWhileOthersRun) {
  const auto is_corpse_of = [](char state, int threads) {
    return is_corpse({.state = state, .threads = threads});
  };
  EXPECT_TRUE(is_corpse_of('Z', 1));
  EXPECT_TRUE(is_corpse_of('X', 1));
  EXPECT_FALSE(is_corpse_of('Z', 2));
  EXPECT_FALSE(is_corpse_of('R', 1));
}

TEST(ProcessName, TellsWhetherAProcessHasEnded) {
  const std::string own = process_name();
  if (own.empty()) GTEST_SKIP() << "/proc does not show this process and the boot's number";
  EXPECT_LE(own.size(), kProcessNameBytesMax);
  EXPECT_FALSE(has_ended(own));
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const std::string name = process_name();
    const bool is_told = ::write(ends[1], name.data(), name.size()) > 0;
    if (is_told) ::pause();
    ::_exit(1);
  }
  char name[kProcessNameBytesMax];
  const ssize_t bytes = ::read(ends[0], name, sizeof name);
  ASSERT_GT(bytes, 0);
  const std::string its(name, static_cast<std::size_t>(bytes));
  EXPECT_FALSE(has_ended(its));
  ::kill(child, SIGSTOP);
  EXPECT_FALSE(has_ended(its));
  ::kill(child, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(has_ended(its)) << "nobody has collected it";
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(has_ended(its));
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(ProcessName, OfAnotherProcessOfTheNumberHasEndedAndNoOtherText) {
  const std::string own = process_name();
  if (own.empty()) GTEST_SKIP() << "/proc does not show this process and the boot's number";
  EXPECT_TRUE(has_ended(own + "0")) << "it began at another time";
  const std::size_t number = own.rfind('/', own.rfind('/') - 1);
  const std::string space = own.substr(0, number + 1);
  for (const std::string& text :
       {std::string(), std::string("?"), space, space + "1", space + "/1", space + "-1/1",
        space + "0/1", space + "99999999999/1", space + "1x/1", space + "1/1x", space + "1/",
        "another boot" + own.substr(own.find('/')),
        // Of another time namespace, in which the process seems to have begun at another time.
        space.substr(0, space.size() - 1) + "1/" + own.substr(number + 1) + "0"}) {
    EXPECT_FALSE(has_ended(text)) << text;
  }
}

}  // namespace
}  // namespace unisono
