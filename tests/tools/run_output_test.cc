// What ranks print arrives in whole, marked lines; what the user types reaches rank 0.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <map>
#include <sstream>

#include "launcher.h"

namespace unisono::run {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(RunOutput, KeepsThousandsOfLinesWholeAndInOrder) {
  constexpr int kLines = 3000;
  LaunchOptions options;
  options.merge_stderr = true;
  // Lines of different lengths, to both streams, in one reader.
  Launcher launcher(shell({"-n", "4"},
                          "awk -v rank=$RANK 'BEGIN { for (i = 0; i < 3000; ++i) {"
                          "  pad = sprintf(\"%*s\", i % 200, \"\"); gsub(/ /, \"x\", pad);"
                          "  line = rank \" \" i \" \" pad \"|\";"
                          "  if (i % 2) print line > \"/dev/stderr\"; else print line } }'"),
                    options);
  ASSERT_EQ(launcher.wait(), 0);
  std::map<std::pair<int, int>, int> next;  // (rank, stream) -> line number
  std::istringstream text(launcher.out());
  int count = 0;
  for (std::string line; std::getline(text, line); ++count) {
    int marked = -1;
    int rank = -1;
    int number = -1;
    ASSERT_EQ(std::sscanf(line.c_str(), "[%d] %d %d ", &marked, &rank, &number), 3) << line;
    ASSERT_EQ(marked, rank) << line;
    const std::string expected = "[" + std::to_string(rank) + "] " + std::to_string(rank) + " " +
                                 std::to_string(number) + " " +
                                 std::string(static_cast<std::size_t>(number % 200), 'x') + "|";
    ASSERT_EQ(line, expected);
    ASSERT_EQ(number / 2, (next[{rank, number % 2}]++)) << "order of one stream";
  }
  EXPECT_EQ(count, 4 * kLines);
}

TEST(RunOutput, KeepsTheStreamsApart) {
  Launcher launcher(shell({"-n", "2"}, "echo out; echo err >&2"));
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_THAT(launcher.sorted_lines(), ElementsAre("[0] out", "[1] out"));
  EXPECT_THAT(launcher.err(), AllOf(HasSubstr("[0] err\n"), HasSubstr("[1] err\n")));
}

TEST(RunOutput, FlushesAnUnfinishedLastLine) {
  Launcher launcher(shell({"-n", "2"}, "printf 'no newline'"));
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_EQ(launcher.out().size(), 2 * std::string("[0] no newline\n").size());
  EXPECT_THAT(launcher.sorted_lines(), ElementsAre("[0] no newline", "[1] no newline"));
}

TEST(RunOutput, CutsVeryLongLinesIntoPieces) {
  Launcher launcher(shell({"-n", "2"}, "head -c 200000 /dev/zero | tr '\\0' x; echo"));
  EXPECT_EQ(launcher.wait(), 0);
  std::map<char, std::size_t> bytes;
  std::istringstream text(launcher.out());
  for (std::string line; std::getline(text, line);) {
    ASSERT_GT(line.size(), 4u);
    EXPECT_LE(line.size(), 4u + 64 * 1024);
    EXPECT_EQ(line.find_first_not_of('x', 4), std::string::npos);
    bytes[line[1]] += line.size() - 4;
  }
  EXPECT_EQ(bytes['0'], 200000u);
  EXPECT_EQ(bytes['1'], 200000u);
}

TEST(RunOutput, NoPrefixPassesBytesUnchanged) {
  Launcher launcher(shell({"--no-prefix"}, "printf 'a\\nb\\0c'; head -c 200000 /dev/zero"));
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_TRUE(launcher.out() == std::string("a\nb\0c", 5) + std::string(200000, '\0'));
}

TEST(RunOutput, AlignsRanksOfDifferentWidth) {
  Launcher launcher(shell({"-n", "11"}, "echo x"));
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_THAT(launcher.out(), AllOf(HasSubstr("[ 0] x\n"), HasSubstr("[10] x\n")));
}

TEST(RunOutput, ColoursOnlyATerminalThatWantsIt) {
  LaunchOptions terminal;
  terminal.terminal = true;
  terminal.environment = {"TERM=xterm", "NO_COLOR="};
  Launcher coloured(shell({}, "echo x"), terminal);
  EXPECT_EQ(coloured.wait(), 0);
  EXPECT_THAT(coloured.out(), HasSubstr("\033["));
  terminal.environment = {"TERM=xterm", "NO_COLOR=1"};
  Launcher plain(shell({}, "echo x"), terminal);
  EXPECT_EQ(plain.wait(), 0);
  EXPECT_EQ(plain.out(), "[0] x\r\n");
}

TEST(RunOutput, AReaderThatLeavesEndsTheRanks) {
  Launcher launcher(shell({"-n", "2", "--timeout-report", "0"}, "echo ready-$RANK; exec yes"));
  ASSERT_TRUE(launcher.prints("ready-0") && launcher.prints("ready-1"));
  launcher.close_output();
  EXPECT_EQ(launcher.wait(), 128 + SIGPIPE);
}

TEST(RunOutput, RankZeroGetsStandardInput) {
  LaunchOptions options;
  options.stdin_text = "first\nsecond\n";
  Launcher launcher(shell({"-n", "3"}, "cat; echo end"), options);
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_THAT(launcher.sorted_lines(),
              ElementsAre("[0] end", "[0] first", "[0] second", "[1] end", "[2] end"));
}

TEST(RunOutput, RankZeroReadsTheTerminal) {
  LaunchOptions options;
  options.terminal = true;
  Launcher launcher(shell({"-n", "2", "--no-prefix"}, "read line; echo \"<$RANK:$line>\""),
                    options);
  launcher.type("typed text\n");
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_THAT(launcher.out(), AllOf(HasSubstr("<0:typed text>"), HasSubstr("<1:>")));
}

TEST(RunOutput, ShowsWhatRankZeroAsksBeforeItIsAnswered) {
  LaunchOptions options;
  options.terminal = true;
  Launcher launcher(shell({"--no-prefix"}, "printf 'name? '; read name; echo \"<$name>\""),
                    options);
  ASSERT_TRUE(launcher.prints("name? "));
  launcher.type("bob\n");
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_THAT(launcher.out(), HasSubstr("<bob>"));
}

TEST(RunOutput, RankZeroSeesTheEndOfTheTerminalsInput) {
  LaunchOptions options;
  options.terminal = true;
  Launcher launcher(shell({"--no-prefix"}, "echo ready; cat; echo end"), options);
  ASSERT_TRUE(launcher.prints("ready"));
  launcher.type("\x04");
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_THAT(launcher.out(), HasSubstr("end"));
}

}  // namespace
}  // namespace unisono::run
