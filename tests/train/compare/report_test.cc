// What is printed: every table and every JSON line, of one small comparison.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "tests/train/compare/workloads.h"
#include "tools/train/compare_report.h"

namespace unisono::train::comparison {
namespace {

using testing::HasSubstr;

Comparison make_comparison() {
  const Workload workload = cnn_workload(12, 2);
  constexpr Span kSpan{.warm_up = 2, .steps = 2};
  Comparison made;
  made.model = workload.make_model()->describe();
  made.data = workload.data;
  made.samples = workload.samples();
  made.transport = "auto";
  made.size = measure_size(workload);
  made.costs = {run_devices(workload, {.name = "single", .devices = 1}, kSpan),
                run_devices(workload, {.name = kDpName}, kSpan),
                run_devices(workload, {.name = kDpOutput1Name, .output = 1}, kSpan),
                run_ranks(workload, {.name = kDdpName}, kSpan)};
  const DpPhases dp = measure_dp_phases(workload, 0);
  made.account = account_of(workload, dp, made.costs.back());
  made.notes = {"something to know"};
  made.outputs = {dp.output, measure_dp_phases(workload, 1).output};
  made.extras = measure_extras(workload, made.costs.back());
  return made;
}

const Comparison& comparison() {
  static const Comparison made = make_comparison();
  return made;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(CompareText, HasALinePerStrategyAndPerDevice) {
  EXPECT_EQ(lines_of(strategies_text(comparison())).size(), 3u + 4);
  EXPECT_EQ(lines_of(members_text(comparison())).size(), 2u + 1 + 2 + 2 + 2);
}

TEST(CompareText, ShowsPredictedBesideMeasured) {
  const std::uint64_t bytes = 4 * even_dp_elements(comparison().size, 12, 2);
  const std::string dp = lines_of(strategies_text(comparison()))[4];
  const std::size_t first = dp.find(grouped(bytes));
  ASSERT_NE(first, std::string::npos) << dp;
  EXPECT_NE(dp.find(grouped(bytes), first + 1), std::string::npos) << dp;
  EXPECT_THAT(dp, HasSubstr("equal"));
  EXPECT_THAT(formulas_text(comparison()), HasSubstr(grouped(bytes / 4)));
}

TEST(CompareText, NamesTheCallsOfADevice) {
  EXPECT_THAT(members_text(comparison()),
              HasSubstr("reduce 1, broadcast 2, gather_v 1, scatter_v 2"));
}

TEST(CompareText, SaysWhereTheTheoryFails) {
  Comparison wrong = comparison();
  EXPECT_EQ(deviations(wrong), "");
  ++wrong.costs[1].predicted[0].by_peer[1].bytes_sent;
  EXPECT_EQ(deviations(wrong), "dp");
  EXPECT_THAT(strategies_text(wrong), HasSubstr("DIFFERS"));
  EXPECT_THAT(text_of(wrong), HasSubstr("otherwise than the theory says: dp"));
  EXPECT_THAT(text_of(comparison()), HasSubstr("to the byte"));
}

TEST(CompareText, HasAllItsParts) {
  const std::string text = text_of(comparison());
  for (const auto part : {strategies_text, members_text, formulas_text, phases_text, extras_text,
                          output_devices_text, outputs_text}) {
    EXPECT_THAT(text, HasSubstr(part(comparison())));
  }
  EXPECT_THAT(text, HasSubstr(matrix_text(comparison().costs.back())));
}

// The table as people read it: eight rows in the usual order, then what was measured besides.
TEST(CompareText, HasTheEightRowsOfTheUsualAccount) {
  const std::vector<std::string> lines = lines_of(phases_text(comparison()));
  ASSERT_GE(lines.size(), 2u + 8 + 1 + 3);
  const ModelSize& size = comparison().size;
  const auto bytes = [](std::uint64_t elements) { return grouped(4 * elements); };
  const std::vector<std::vector<std::string>> rows{
      {"data loader", "0", "0"},
      {"splitting into mini-batches", "0", "0"},
      {"sharing mini-batches", bytes(12 / 2 * size.inputs), "0"},
      {"sharing parameters", bytes(size.parameters), "0"},
      {"forward", "0", "0"},
      {"loss", bytes(12 / 2 * size.outputs), "0"},
      {"gradients", bytes(12 / 2 * size.outputs), "0"},
      {"update", bytes(size.parameters), bytes(2 * size.parameters)}};
  const std::regex row("^(\\S.*?)  +\\S.*?  +([0-9,]+)  +\\S.*?  +([0-9,]+)$");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::smatch cells;
    ASSERT_TRUE(std::regex_match(lines[2 + i], cells, row)) << lines[2 + i];
    EXPECT_THAT(std::vector<std::string>(cells.begin() + 1, cells.end()),
                testing::ElementsAreArray(rows[i]));
  }
  EXPECT_EQ(lines[10], "besides:");
  EXPECT_THAT(lines[11], HasSubstr("buffers"));
  EXPECT_THAT(lines[11], HasSubstr(bytes(size.buffers)));
}

TEST(CompareText, SaysWhichToPrefer) {
  EXPECT_THAT(phases_text(comparison()), HasSubstr("Prefer DDP: "));
  Comparison without = comparison();
  without.costs.pop_back();
  EXPECT_EQ(advice_text(without), "");
}

TEST(CompareText, HasOutputDevicesBesideEachOther) {
  EXPECT_EQ(lines_of(output_devices_text(comparison())).size(), 2u + 2);
  Comparison without = comparison();
  without.costs.pop_back();
  without.costs.pop_back();
  EXPECT_EQ(output_devices_text(without), "");
}

TEST(CompareText, HasAMatrixRowPerDevice) {
  const std::vector<std::string> lines = lines_of(matrix_text(comparison().costs[1]));
  ASSERT_EQ(lines.size(), 2u + 2);
  EXPECT_THAT(lines[2], testing::ContainsRegex("^0 +- +[0-9,]+$"));
  EXPECT_THAT(lines[3], testing::ContainsRegex("^1 +[0-9,]+ +-$"));
}

TEST(CompareText, WorksTheTextbooksCase) {
  EXPECT_EQ(worked_text(),
            "textbook case: 40,000 words x 250 tokens x 32 sequences x 4 B = 1.28 GB, 2.56 GB with "
            "its gradient\n");
  EXPECT_THAT(text_of(comparison()), HasSubstr(worked_text()));
}

TEST(CompareText, GroupsDigits) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(1234567), "1,234,567");
}

TEST(CompareJson, IsOneObjectPerLineWithAKind) {
  std::map<std::string, int> kinds;
  for (const std::string& line : lines_of(json_of(comparison()))) {
    ++kinds[nlohmann::json::parse(line).at("kind").get<std::string>()];
  }
  EXPECT_THAT(kinds, testing::ElementsAre(testing::Pair("apart", 5), testing::Pair("besides", 3),
                                          testing::Pair("comparison", 1), testing::Pair("note", 1),
                                          testing::Pair("output_memory", 2),
                                          testing::Pair("phase", 8), testing::Pair("strategy", 4)));
}

TEST(CompareJson, HasTheCountsOfOneStep) {
  const std::vector<std::string> lines = lines_of(json_of(comparison()));
  const auto dp = nlohmann::json::parse(lines[3]);
  const std::uint64_t bytes = 4 * even_dp_elements(comparison().size, 12, 2);
  EXPECT_EQ(dp.at("strategy"), "dp");
  EXPECT_EQ(dp.at("bytes"), bytes);
  EXPECT_EQ(dp.at("predicted_bytes"), bytes);
  EXPECT_EQ(dp.at("as_predicted"), true);
  EXPECT_EQ(dp.at("threads_started"), 2);
  ASSERT_EQ(dp.at("devices").size(), 2u);
  const auto& second = dp.at("devices")[1];
  EXPECT_EQ(second.at("measured"), second.at("predicted"));
  EXPECT_EQ(second.at("collectives").at("reduce").at("calls"), 1);
  EXPECT_EQ(second.at("collectives").at("reduce").at("bytes_sent"),
            4 * comparison().size.parameters);
  EXPECT_EQ(second.at("bytes_to")[1], 0);
  EXPECT_GT(second.at("peak_memory").get<std::size_t>(), 0u);
}

}  // namespace
}  // namespace unisono::train::comparison
