// The selection table: its text in both directions, the order of its rows, and the choice between
// native and plans. Texts come from users' files, so most of them here are wrong.
#include "algorithms/selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/config.h"

namespace unisono::test {
namespace {

using algorithms::Choice;
using algorithms::Cores;
using algorithms::Link;
using algorithms::NativeRange;
using algorithms::SelectionRequest;
using algorithms::SelectionTable;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::size_t kAnySize = ~std::size_t{0};

SelectionTable table_of(const std::string& text) {
  Result<SelectionTable> table = SelectionTable::from_text(text, "tuning.txt");
  EXPECT_TRUE(table) << table.status().message();
  return table ? *table : SelectionTable::defaults();
}

std::string error_of(const std::string& text) {
  const Result<SelectionTable> table = SelectionTable::from_text(text);
  if (table) return "accepted";
  EXPECT_EQ(table.error().code(), ErrorCode::kInvalidArgument);
  return table.error().message();
}

SelectionRequest all_reduce(int ranks, std::size_t bytes, Link link) {
  SelectionRequest request;
  request.collective = Collective::kAllReduce;
  request.ranks = ranks;
  request.bytes = bytes;
  request.link = link;
  request.native = link == Link::kShm;
  return request;
}

// "native auto", "ring" or the error.
std::string chosen(const SelectionTable& table, const SelectionRequest& request,
                   std::string_view hint = "") {
  const Result<Choice> choice = table.choose(request, hint);
  if (!choice) return choice.error().message();
  if (choice->algorithm != nullptr) return std::string(choice->algorithm->name);
  return "native " + std::string(name_of(choice->path));
}

// By which tables, the settings and the tools speak of the same things.
TEST(SelectionText, NamesALinkAsTheTransportThatItIs) {
  for (const std::string_view name : kTransports) {
    bool is_link = name == "auto";
    for (int link = 0; link <= static_cast<int>(Link::kTcp); ++link) {
      is_link = is_link || name == algorithms::name_of(static_cast<Link>(link));
    }
    EXPECT_TRUE(is_link) << name;
  }
}

TEST(SelectionText, OfTheDefaultsReadsBackAsItself) {
  const std::string text = SelectionTable::defaults().to_text();
  const SelectionTable read = table_of(text);
  const std::size_t rows = SelectionTable::defaults().rows().size();
  ASSERT_EQ(read.rows().size(), 2 * rows);
  SelectionTable first_half;
  for (std::size_t i = 0; i < rows; ++i) first_half.append(read.rows()[i]);
  EXPECT_EQ(first_half.to_text(), text);
}

TEST(SelectionText, KeepsEveryColumn) {
  const char* row = "all_reduce shm 2 8 shared 4096 native single_copy 0";
  const SelectionTable table = table_of(std::string("# a comment\n\n  ") + row + "  # why\r\n");
  const algorithms::SelectionRow& read = table.rows().front();
  EXPECT_EQ(read.collective, Collective::kAllReduce);
  EXPECT_FALSE(read.any_link);
  EXPECT_EQ(read.link, Link::kShm);
  EXPECT_EQ(read.ranks_min, 2);
  EXPECT_EQ(read.ranks_max, 8);
  EXPECT_EQ(read.cores, Cores::kShared);
  EXPECT_EQ(read.bytes_max, 4096u);
  EXPECT_TRUE(read.is_native());
  EXPECT_EQ(read.path, AccessPath::kSingleCopy);
  EXPECT_EQ(read.line, 3);
  EXPECT_EQ(to_text(read), row);
}

TEST(SelectionText, StandsInAlignedColumns) {
  SelectionTable table;
  for (const char* row : {"all_reduce tcp 2 2 own 64 ring - 1048576",
                          "reduce_scatter shm 1 any any any native auto 0"}) {
    table.append(table_of(row).rows().front());
  }
  EXPECT_EQ(table.to_text(),
            "# collective    link  ranks_min  ranks_max  cores  bytes_max  algorithm  path  "
            "chunk_bytes\n"
            "all_reduce      tcp           2          2  own           64  ring       -         "
            "1048576\n"
            "reduce_scatter  shm           1        any  any          any  native     auto      "
            "      0\n");
}

TEST(SelectionText, NamesTheColumnTheValueAndWhatIsAllowed) {
  const std::string good = "all_reduce tcp 2 4 any any ring - 0";
  ASSERT_EQ(error_of(good), "accepted");
  const auto refuses = [&](const std::string& row, const char* column, const char* allowed) {
    // The third line: a comment and a good row come first.
    EXPECT_THAT(error_of("# comment\n" + good + "\n" + row),
                AllOf(StartsWith("line 3: "), HasSubstr(column), HasSubstr(allowed)))
        << row;
  };
  refuses("all_reduc tcp 2 4 any any ring - 0", "collective 'all_reduc'", "all_reduce, reduce,");
  refuses("send tcp 2 4 any any native auto 0", "collective 'send'", "barrier");
  refuses("all_reduce rdma 2 4 any any ring - 0", "link 'rdma'",
          "loopback, shm, unix, verbs or tcp");
  refuses("all_reduce tcp 0 4 any any ring - 0", "ranks_min '0'", "from 1 to 1048576");
  refuses("all_reduce tcp any 4 any any ring - 0", "ranks_min 'any'", "from 1 to 1048576");
  refuses("all_reduce tcp 5 4 any any ring - 0", "ranks_max '4'", "from ranks_min");
  refuses("all_reduce tcp 2 1048577 any any ring - 0", "ranks_max '1048577'", "1048576");
  refuses("all_reduce tcp 2 4 both any ring - 0", "cores 'both'", "any, own or shared");
  refuses("all_reduce tcp 2 4 any 64K ring - 0", "bytes_max '64K'", "number of bytes");
  refuses("all_reduce tcp 2 4 any -1 ring - 0", "bytes_max '-1'", "number of bytes");
  refuses("all_reduce tcp 2 4 any any pairwise - 0", "algorithm 'pairwise'", "native, ring");
  refuses("all_reduce tcp 2 4 any any ring auto 0", "path 'auto'", "only native");
  refuses("all_reduce tcp 2 4 any any ring - any", "chunk_bytes 'any'", "0 for uncut");
  refuses("all_reduce shm 2 4 any any native - 0", "path '-'",
          "window, single_copy, mapped or streamed");
  refuses("all_reduce shm 2 4 any any native auto 64", "chunk_bytes '64'", "0");
  refuses("all_reduce tcp 2 4 any any native auto 0", "link 'tcp'", "any or shm");
  refuses("all_reduce tcp 2 4 any ring 0", "expected 9 columns", "found 7");
  refuses(good + " 0", "expected 9 columns", "found 10");
}

TEST(SelectionText, BoundsWhatAHostileFileMakesItDo) {
  std::string wide;
  for (int i = 0; i < 1'000'000; ++i) wide += "1 ";
  EXPECT_THAT(error_of(wide), HasSubstr("more than 1048576 bytes"));
  EXPECT_THAT(error_of(wide.substr(0, 10'000)), StartsWith("line 1: longer than 1000"));
  EXPECT_THAT(error_of(wide.substr(0, 600)), HasSubstr("found 300"));
  std::string tall;
  for (int i = 0; i < 5000; ++i) tall += "all_reduce tcp 2 4 any any ring - 0\n";
  EXPECT_THAT(error_of(tall), AllOf(StartsWith("line 4097: "), HasSubstr("4096 rows")));
  const std::string digits(300, '9');
  EXPECT_THAT(error_of("all_reduce tcp 2 4 any " + digits + " ring - 0"),
              AllOf(HasSubstr("bytes_max '999"), HasSubstr("...'")));
  EXPECT_THAT(error_of("all_reduce tcp " + digits + " 4 any any ring - 0"),
              HasSubstr("ranks_min '999"));
  EXPECT_THAT(error_of("all_reduce tcp 2 4 any any ring - " + digits), HasSubstr("chunk_bytes"));
  EXPECT_THAT(error_of("all_reduce tcp 2 4 any any ri\x1b[2Jng - 0"), HasSubstr("'ri?[2Jng'"));
  EXPECT_EQ(error_of(""), "accepted");
  EXPECT_EQ(error_of(std::string(1, '\0')).substr(0, 7), "line 1:");
}

TEST(SelectionText, OfAMissingFileIsAnErrorThatNamesIt) {
  EXPECT_TRUE(SelectionTable::load(""));
  for (const std::string& path : {std::string("/no/such/table"), testing::TempDir()}) {
    const Result<SelectionTable> table = SelectionTable::load(path);
    ASSERT_FALSE(table) << path;
    EXPECT_THAT(table.error().message(),
                AllOf(HasSubstr("UNISONO_TUNING=" + path), HasSubstr("cannot be read")));
  }
}

TEST(Selection, TakesTheFirstRowThatMatches) {
  const SelectionTable table = table_of(
      "all_reduce tcp 2 4 any 1000 ring      - 0\n"
      "all_reduce any 2 4 any 2000 two_shot  - 0\n"
      "all_reduce tcp 2 4 any 1000 one_shot  - 0\n"
      "all_reduce tcp 3 3 any any  one_shot  - 0\n");
  EXPECT_EQ(chosen(table, all_reduce(2, 1000, Link::kTcp)), "ring");
  EXPECT_EQ(chosen(table, all_reduce(2, 1001, Link::kTcp)), "two_shot");
  EXPECT_EQ(chosen(table, all_reduce(2, 1000, Link::kUnix)), "two_shot");
  EXPECT_EQ(chosen(table, all_reduce(3, 2001, Link::kTcp)), "one_shot");
  const SelectionTable defaults = SelectionTable::defaults();
  for (const int ranks : {2, 5}) {
    const SelectionRequest beyond = all_reduce(ranks, std::size_t{1} << 30, Link::kTcp);
    EXPECT_EQ(chosen(table, beyond), chosen(defaults, beyond)) << ranks;
  }
}

TEST(Selection, SkipsRowsWhoseAlgorithmRefuses) {
  SelectionRequest request = all_reduce(4, 1000, Link::kTcp);
  request.order = Order::kCanonical;
  const SelectionTable table = table_of(
      "all_reduce tcp 1 any any any ring     - 0\n"
      "all_reduce tcp 1 any any any two_shot - 0\n");
  EXPECT_EQ(chosen(table, request), "two_shot");
}

TEST(Selection, TellsOwnCoresFromSharedOnes) {
  const SelectionTable table = table_of(
      "all_reduce tcp 1 any shared any ring     - 0\n"
      "all_reduce tcp 1 any own    any two_shot - 0\n");
  SelectionRequest request = all_reduce(4, 1000, Link::kTcp);
  EXPECT_EQ(chosen(table, request), "two_shot");
  request.shared_cores = true;
  EXPECT_EQ(chosen(table, request), "ring");
}

TEST(Selection, IsNativeByDefaultWhereRanksShareMemory) {
  const SelectionTable table = SelectionTable::defaults();
  for (int c = 0; c < static_cast<int>(Collective::kSend); ++c) {
    for (const int ranks : {1, 2, 64}) {
      for (const std::size_t bytes : {std::size_t{0}, std::size_t{1000}, kAnySize}) {
        SelectionRequest request = all_reduce(ranks, bytes, Link::kShm);
        request.collective = static_cast<Collective>(c);
        EXPECT_EQ(chosen(table, request), "native auto");
        request.native = false;
        EXPECT_THAT(chosen(table, request), testing::Not(HasSubstr("native")));
      }
    }
  }
}

TEST(Selection, IsNativeOnlyThroughARowThatMatches) {
  const SelectionTable table = table_of(
      "all_reduce shm 2 2 any 1000 native window      0\n"
      "all_reduce shm 2 2 any 5000 ring   -           0\n"
      "all_reduce shm 2 2 any any  native single_copy 0\n");
  EXPECT_EQ(chosen(table, all_reduce(2, 1000, Link::kShm)), "native window");
  EXPECT_EQ(chosen(table, all_reduce(2, 1001, Link::kShm)), "ring");
  EXPECT_EQ(chosen(table, all_reduce(2, 5001, Link::kShm)), "native single_copy");
  EXPECT_EQ(chosen(table, all_reduce(3, 1000, Link::kShm)), "native auto");
}

TEST(Selection, ObeysAccessBeforeTheTable) {
  const SelectionTable table = table_of("all_reduce shm 2 2 any any native single_copy 0\n");
  SelectionRequest request = all_reduce(2, 1 << 20, Link::kShm);
  request.access = AccessPath::kWindow;
  EXPECT_EQ(chosen(table, request), "native window");
  EXPECT_EQ(chosen(table, request, "native"), "native window");
}

TEST(Selection, ObeysTheHintBeforeTheTable) {
  const SelectionTable table = table_of(
      "all_reduce shm 2 2 any 1000 ring   -           4096\n"
      "all_reduce shm 2 2 any any  native single_copy 0\n");
  EXPECT_EQ(chosen(table, all_reduce(2, 10, Link::kShm), "native"), "native single_copy");
  EXPECT_EQ(chosen(table, all_reduce(2, 1 << 20, Link::kShm), "two_shot"), "two_shot");
  // A hinted plan is cut as the first row of its name says.
  EXPECT_EQ(table.choose(all_reduce(2, 1 << 20, Link::kShm), "ring")->chunks, 64);
  EXPECT_THAT(chosen(table, all_reduce(2, 10, Link::kTcp), "native"), HasSubstr("shared memory"));
  EXPECT_THAT(chosen(table, all_reduce(2, 10, Link::kShm), "pairwise"),
              HasSubstr("choose one of: ring"));
  SelectionRequest canonical = all_reduce(3, 10, Link::kShm);
  canonical.order = Order::kCanonical;
  EXPECT_THAT(chosen(table, canonical, "ring"), StartsWith("algorithm ring of all_reduce: "));
}

TEST(Selection, AnswersForRangesOfSizesAsForEachSize) {
  const SelectionTable table = table_of(
      "all_reduce shm 2 4 any  1000 native window      0\n"
      "all_reduce shm 2 4 any  500  ring   -           0\n"
      "broadcast  shm 2 4 any  700  binomial -         0\n"
      "all_reduce shm 2 4 own  5000 ring   -           0\n"
      "all_reduce shm 2 4 any  9000 native window      0\n"
      "all_reduce shm 2 4 any  9500 native single_copy 0\n");
  for (const int ranks : {2, 5}) {
    for (const bool shared : {false, true}) {
      SelectionRequest request = all_reduce(ranks, 77, Link::kShm);
      request.shared_cores = shared;
      const std::vector<NativeRange> ranges = table.native_ranges(request);
      ASSERT_FALSE(ranges.empty());
      EXPECT_EQ(ranges.back().bytes_max, kAnySize);
      std::size_t at = 0;
      for (const std::size_t bytes : {0ul, 500ul, 501ul, 1000ul, 1001ul, 5000ul, 5001ul, 9000ul,
                                      9001ul, 9500ul, 9501ul, kAnySize}) {
        while (bytes > ranges[at].bytes_max) ++at;
        request.bytes = bytes;
        const Result<Choice> choice = table.choose(request, "");
        ASSERT_TRUE(choice);
        EXPECT_EQ(ranges[at].native, choice->algorithm == nullptr) << bytes;
        EXPECT_EQ(ranges[at].path, choice->path) << bytes;
      }
    }
  }
}

TEST(Selection, HasOneRangeWithTheDefaultTable) {
  EXPECT_EQ(SelectionTable::defaults().native_ranges(all_reduce(2, 0, Link::kShm)).size(), 1u);
  EXPECT_EQ(SelectionTable::defaults().native_ranges(all_reduce(2, 0, Link::kTcp)).size(), 1u);
}

TEST(SelectionReason, NamesTheRowAndWhereItIsWritten) {
  const SelectionTable table = table_of(
      "# measured\n"
      "all_reduce shm 2 2 any 1000 native single_copy 0\n");
  EXPECT_THAT(table.explain(all_reduce(2, 10, Link::kShm), ""),
              AllOf(HasSubstr("single copy"), HasSubstr("tuning.txt, line 2: all_reduce shm 2 2")));
  EXPECT_THAT(table.explain(all_reduce(4, 10, Link::kShm), ""),
              HasSubstr("the default table: all_reduce shm 1 any any any native auto 0"));
  EXPECT_THAT(table.explain(all_reduce(2, 10, Link::kTcp), ""),
              AllOf(HasSubstr("one_shot in 1 chunk"), HasSubstr("the default table: all_reduce")));
  EXPECT_THAT(table.explain(all_reduce(2, 10, Link::kTcp), "ring"), HasSubstr("asked for"));
  EXPECT_THAT(table.explain(all_reduce(2, 10, Link::kTcp), "native"), HasSubstr("shared memory"));
  SelectionRequest forced = all_reduce(2, 10, Link::kShm);
  forced.access = AccessPath::kWindow;
  EXPECT_THAT(table.explain(forced, ""), HasSubstr("UNISONO_ACCESS=window"));
}

SelectionRequest broadcast_between_hosts(std::size_t bytes) {
  SelectionRequest request;
  request.collective = Collective::kBroadcast;
  request.ranks = 4;
  request.bytes = bytes;
  request.links = {.latency_us = 10, .bytes_per_us = 120};
  return request;
}

TEST(SelectionByLinks, TakesThePlaceOfTheDefaultsAlone) {
  const SelectionRequest request = broadcast_between_hosts(64 << 10);
  const SelectionTable defaults = SelectionTable::defaults();
  EXPECT_EQ(chosen(defaults, request), "pipelined_chain");
  EXPECT_EQ(chosen(defaults, request, "linear"), "linear");
  EXPECT_EQ(chosen(table_of("broadcast tcp 1 any any any linear - 0\n"), request), "linear");
  EXPECT_EQ(chosen(table_of("broadcast tcp 1 any any 1024 linear - 0\n"), request),
            "pipelined_chain");
  SelectionRequest unknown = request;
  unknown.links = {};
  EXPECT_EQ(chosen(defaults, unknown), "binomial");
}

TEST(SelectionByLinks, SaysWhatItWeighed) {
  EXPECT_THAT(SelectionTable::defaults().explain(broadcast_between_hosts(64 << 10), ""),
              AllOf(HasSubstr("because of the links between the hosts, 10 us and 0.12 GB/s"),
                    HasSubstr("predicted: pipelined_chain in 16 chunks"),
                    HasSubstr(", binomial 11"), HasSubstr(", linear 16")));
}

// A rank that gets its core late holds up what the line carries in 2 ms, not a MiB.
TEST(SelectionByLinks, CutsRingsIntoWhatTheLinksCarryInAMoment) {
  const SelectionTable table = SelectionTable::defaults();
  SelectionRequest request{
      .collective = Collective::kAllReduce, .ranks = 4, .bytes = 16 << 20, .link = Link::kTcp};
  EXPECT_EQ(table.choose(request, "")->chunks, 4) << "nothing is known";
  request.links = {.latency_us = 30, .bytes_per_us = 125};
  EXPECT_EQ(table.choose(request, "")->chunks, 16);
  EXPECT_EQ(table.choose(request, "ring")->chunks, 16);
  EXPECT_THAT(table.explain(request, ""), HasSubstr("in 2 ms"));
  request.links.bytes_per_us = 12'500;
  EXPECT_EQ(table.choose(request, "")->chunks, 4) << "a MiB goes in less";
  EXPECT_THAT(table.explain(request, ""), testing::Not(HasSubstr("in 2 ms")));
  request.links.bytes_per_us = 1;
  EXPECT_EQ(table.choose(request, "")->chunks, 64) << "64 KiB at least";
  request.links.bytes_per_us = 125;
  const SelectionTable own = table_of("all_reduce tcp 1 any any any ring - 1048576\n");
  EXPECT_EQ(own.choose(request, "")->chunks, 4) << "a file says what it says";
}

}  // namespace
}  // namespace unisono::test
