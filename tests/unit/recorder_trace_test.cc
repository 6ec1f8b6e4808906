// A trace is JSON that viewers take, whatever a record holds.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "recorder/trace.h"
#include "tests/unit/recorder_record.h"

namespace unisono::recorder::test {
namespace {

// The events of a kind: "M" names, "X" calls that are over, "B" those that run.
std::vector<nlohmann::json> events(const std::vector<RankRecord>& records, const char* phase) {
  std::vector<nlohmann::json> found;
  const nlohmann::json trace = nlohmann::json::parse(trace_of(records));
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    if (event.at("ph") == phase) found.push_back(event);
  }
  return found;
}

TEST(Trace, HasEveryCallOfEveryRankAtItsTime) {
  std::vector<RankRecord> records;
  for (int i = 0; i < 2; ++i) {
    RecordingRank rank(i, 2);
    CallRecorder calls(&rank.recorder, 9);
    calls.open(2, i);
    calls.end(calls.begin(all_reduce(0)), Status());
    calls.end(calls.begin(all_reduce(1)), Status(ErrorCode::kTimeout, "", 1));
    calls.begin(message(Collective::kReceive, 1 - i));
    records.push_back(rank.read());
  }
  const auto over = events(records, "X");
  ASSERT_EQ(over.size(), 4u);
  EXPECT_EQ(over[0].at("name"), "all_reduce");
  EXPECT_EQ(over[0].at("pid"), 0);
  EXPECT_EQ(over[3].at("pid"), 1);
  EXPECT_EQ(over[3].at("tid"), 9);
  EXPECT_EQ(over[3].at("args").at("error"), "timeout");
  EXPECT_LT(over[0].at("ts"), 86'400e6 * 2);
  EXPECT_GE(over[0].at("dur"), 0.0);
  EXPECT_LE(over[0].at("ts"), over[1].at("ts"));
  const auto running = events(records, "B");
  ASSERT_EQ(running.size(), 2u);
  EXPECT_EQ(running[0].at("cat"), "message");
  EXPECT_EQ(events(records, "M").size(), 4u);
}

TEST(Trace, KeepsNanosecondsAndQuotesTexts) {
  RankRecord record{.host = "a\"b\\", .opened_ns = 86'400'000'000'000};
  record.calls.push_back({.state = EntryState::kOver,
                          .started_ns = 86'400'000'001'002,
                          .ended_ns = 86'400'000'001'003});
  record.calls.push_back({.state = EntryState::kOver, .started_ns = INT64_MIN});
  EXPECT_EQ(events({record}, "X")[0].at("ts"), 1.002);
  EXPECT_EQ(events({record}, "X")[0].at("dur"), 0.001);
  EXPECT_EQ(events({record}, "M")[0].at("args").at("name"), "rank 0 on a\"b\\");
  EXPECT_EQ(events({}, "M").size(), 0u);
}

}  // namespace
}  // namespace unisono::recorder::test
