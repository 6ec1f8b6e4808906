// The small parts the commands share: sizes, tables, progress text, line cutting.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tools/common/environment.h"
#include "tools/common/sizes.h"
#include "tools/common/table.h"
#include "tools/common/terminal.h"
#include "tools/run/output_prefix.h"

namespace unisono::tools {
namespace {

using ::testing::HasSubstr;

TEST(Sizes, ReadsSuffixesAsPowersOf1024) {
  EXPECT_EQ(*parse_bytes("4", "x"), 4u);
  EXPECT_EQ(*parse_bytes("64K", "x"), 64u * 1024);
  EXPECT_EQ(*parse_bytes("1m", "x"), 1u << 20);
  EXPECT_EQ(*parse_bytes("2GiB", "x"), 2ull << 30);
  EXPECT_EQ(*parse_bytes("3KB", "x"), 3u * 1024);
  EXPECT_EQ(*parse_bytes("0", "x"), 0u);
  EXPECT_EQ(*parse_bytes("8T", "x"), 8ull << 40);
}

TEST(Sizes, RefusesWhatIsNoSizeAndNamesTheFlag) {
  for (const char* text : {"", "K", "-1", "1.5M", "1X", "1KK", "1 K", "0x10", "1iB", "+4"}) {
    const auto result = parse_bytes(text, "--max-bytes");
    ASSERT_FALSE(result.has_value()) << text;
    EXPECT_EQ(result.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(result.error().message(), HasSubstr("--max-bytes"));
  }
}

TEST(Sizes, RefusesOverflowAndWhatIsOutsideTheBounds) {
  EXPECT_FALSE(parse_bytes("18446744073709551616", "x"));
  EXPECT_FALSE(parse_bytes("18014398509481984K", "x"));
  EXPECT_EQ(*parse_bytes("18014398509481983K", "x"), 18014398509481983ull << 10);
  const auto result = parse_bytes("2M", "x", {.min = 4, .max = 1 << 20});
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message(), HasSubstr("4 to 1M"));
}

TEST(Sizes, FormatsWhatParsingReadsBack) {
  for (const std::uint64_t bytes :
       {0ull, 1ull, 1000ull, 1024ull, 1536ull, 3ull << 20, 1ull << 50}) {
    EXPECT_EQ(*parse_bytes(format_bytes(bytes), "x"), bytes) << format_bytes(bytes);
  }
  EXPECT_EQ(format_bytes(1 << 20), "1M");
  EXPECT_EQ(format_bytes_rounded(999), "999 B");
  EXPECT_EQ(format_bytes_rounded(1.5 * 1024 * 1024), "1.5 MiB");
  EXPECT_EQ(format_bytes_rounded(1024.0 * 1024 - 1), "1.0 MiB");
}

TEST(Sizes, CountsOneThingAsOne) {
  EXPECT_EQ(counted(0, "rank", "ranks"), "0 ranks");
  EXPECT_EQ(counted(std::size_t{1}, "rank", "ranks"), "1 rank");
  EXPECT_EQ(counted(2, "process", "processes"), "2 processes");
}

TEST(Sizes, ReadsIntegersAndSecondsInsideTheirBounds) {
  EXPECT_EQ(*parse_integer("-3", "x", -5, 5), -3);
  EXPECT_FALSE(parse_integer("6", "x", -5, 5));
  EXPECT_FALSE(parse_integer("3x", "x", -5, 5));
  EXPECT_FALSE(parse_integer("", "x", -5, 5));
  EXPECT_FALSE(parse_integer("99999999999999999999", "x", -5, 5));
  EXPECT_DOUBLE_EQ(*parse_seconds("0.25", "x", 10), 0.25);
  for (const char* text : {"", "nan", "inf", "-1", "11", "1e1", "5s"}) {
    EXPECT_FALSE(parse_seconds(text, "x", 10)) << text;
  }
}

TEST(Sizes, FormatsDurationsForReading) {
  EXPECT_EQ(format_duration(85e-6), "85 us");
  EXPECT_EQ(format_duration(0.25), "250 ms");
  EXPECT_EQ(format_duration(5), "5 s");
  EXPECT_EQ(format_duration(200), "3 min 20 s");
  EXPECT_EQ(format_duration(7500), "2 h 05 min");
  EXPECT_EQ(format_duration(-1), "unknown");
}

TEST(Table, AlignsColumnsAndLeavesNoTrailingBlanks) {
  Table table({{"bytes"}, {"note", Align::kLeft}});
  table.add_row({"64K", "ok"});
  table.add_row({"1048576"});
  table.add_row({"1", "µs", "dropped"});
  EXPECT_EQ(table.text(),
            "  bytes  note\n"
            "    64K  ok\n"
            "1048576\n"
            "      1  µs\n");
  EXPECT_EQ(table.row_count(), 3u);
}

TEST(Table, PrintsLineByLineAtDeclaredWidths) {
  const Table table({{"size", Align::kRight, 8}, {"t"}});
  EXPECT_EQ(table.header_line(), "    size  t\n");
  EXPECT_EQ(table.row_line({"1M", "2"}), "      1M  2\n");
}

TEST(Table, CountsCodePointsNotBytes) { EXPECT_EQ(display_width("µs → ok"), 7u); }

TEST(Progress, TellsTheTimeLeft) {
  EXPECT_EQ(progress_text(1, 4, 10, "1M"), "  25 %  1M  (30 s left)");
  EXPECT_EQ(progress_text(0, 4, 10, "1M"), "   0 %  1M");
  EXPECT_EQ(progress_text(9, 4, 10, "1M"), " 100 %  1M");
  EXPECT_EQ(progress_text(0, 0, 0, "text"), "text");
}

TEST(Terminal, PaintsOnlyWhenWanted) {
  EXPECT_EQ(paint("x", Colour::kRed, false), "x");
  EXPECT_EQ(paint("x", Colour::kRed, true), "\033[31mx\033[0m");
}

TEST(Environment, FindsWholeNamesOnly) {
  ::setenv("UNISONO_TEST_NAME", "a=b", 1);
  EXPECT_EQ(environment_value("UNISONO_TEST_NAME"), "a=b");
  EXPECT_FALSE(environment_value("UNISONO_TEST_NAM"));
  EXPECT_FALSE(environment_value("UNISONO_TEST_NAME="));
}

using run::kPieceBytesMax;
using run::LineCutter;

TEST(LineCutter, EmitsWholeLinesWhateverTheReads) {
  const std::string text = "one\n\ntwo\nlast";
  for (std::size_t step = 1; step <= text.size(); ++step) {
    LineCutter cutter("> ");
    std::string out;
    for (std::size_t at = 0; at < text.size(); at += step) {
      cutter.add(text.substr(at, step), &out);
      EXPECT_TRUE(out.empty() || out.back() == '\n');
    }
    EXPECT_EQ(out, "> one\n> \n> two\n") << step;
    cutter.finish(&out);
    EXPECT_EQ(out, "> one\n> \n> two\n> last\n") << step;
  }
}

TEST(LineCutter, CutsLongLinesIntoBoundedPieces) {
  const std::string full(kPieceBytesMax, 'x');
  for (const std::size_t step : {std::size_t{1000}, kPieceBytesMax, 2 * kPieceBytesMax + 7}) {
    LineCutter cutter("> ");
    std::string out;
    const std::string text = full + full + "\n" + full + "y\n";
    for (std::size_t at = 0; at < text.size(); at += step) cutter.add(text.substr(at, step), &out);
    EXPECT_TRUE(out == "> " + full + "\n> " + full + "\n> " + full + "\n> y\n") << step;
  }
}

TEST(LineCutter, PassesBytesUnchangedWithoutPrefix) {
  std::string text(3 * kPieceBytesMax + 5, 'x');
  text[10] = '\n';
  text[2 * kPieceBytesMax] = '\n';
  LineCutter cutter("");
  std::string out;
  for (std::size_t at = 0; at < text.size(); at += 777) cutter.add(text.substr(at, 777), &out);
  cutter.finish(&out);
  EXPECT_TRUE(out == text);
}

TEST(RankPrefix, IsAsWideAsTheLargestRank) {
  EXPECT_EQ(run::rank_prefix(3, 4, false), "[3] ");
  EXPECT_EQ(run::rank_prefix(3, 11, false), "[ 3] ");
  EXPECT_EQ(run::rank_prefix(10, 11, false), "[10] ");
}

}  // namespace
}  // namespace unisono::tools
