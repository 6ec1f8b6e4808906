// A trace is JSON that viewers take, whatever a record holds.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "recorder/trace.h"
#include "tests/support/log_guard.h"
#include "tests/support/temporary_folder.h"
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
  EXPECT_EQ(over[3].at("args").at("error"), "timeout");
  EXPECT_LT(over[0].at("ts"), 86'400e6 * 2);
  EXPECT_GE(over[0].at("dur"), 0.0);
  EXPECT_LE(over[0].at("ts"), over[1].at("ts"));
  const auto running = events(records, "B");
  ASSERT_EQ(running.size(), 2u);
  EXPECT_EQ(running[0].at("cat"), "message");
  EXPECT_EQ(events(records, "M").size(), 6u);
}

// A track whose calls overlap, and do not contain each other, is shown wrong.
TEST(Trace, CallsThatOverlapHaveTracksOfTheirOwn) {
  RankRecord record;
  const auto add = [&](const Operation& operation, std::int64_t from_us, std::int64_t to_us) {
    RecordedCall call{
        .state = EntryState::kCompleted, .communicator = 9, .record = operation.record};
    call.started_ns = 86'400'000'000'000 + from_us * 1000;
    call.ended_ns = 86'400'000'000'000 + to_us * 1000;
    record.calls.push_back(call);
  };
  record.opened_ns = 86'400'000'000'000;
  record.communicators.push_back({.id = 9, .size = 2});
  add(all_reduce(0), 10, 30);
  add(message(Collective::kSend, 1), 20, 40);
  add(message(Collective::kReceive, 1), 25, 50);
  add(all_reduce(1), 30, 60);
  add(message(Collective::kSend, 1), 41, 45);
  std::map<int, std::string> names;
  for (const nlohmann::json& event : events({record}, "M")) {
    if (event.at("name") == "thread_name") {
      names[event.at("tid")] = event.at("args").at("name");
    }
  }
  std::vector<std::string> tracks;
  for (const nlohmann::json& event : events({record}, "X")) {
    tracks.push_back(names[event.at("tid")]);
  }
  const std::string communicator = "communicator 9 of 2 ranks: ";
  EXPECT_THAT(tracks,
              testing::ElementsAre(communicator + "collectives", communicator + "messages",
                                   communicator + "messages 2", communicator + "collectives",
                                   communicator + "messages"));
}

TEST(Trace, CountsOneRankAsOne) {
  RecordingRank rank(0, 1);
  CallRecorder calls(&rank.recorder, 3);
  calls.open(1, 0);
  calls.begin(all_reduce(0));
  EXPECT_EQ(events({rank.read()}, "M").back().at("args").at("name"),
            "communicator 3 of 1 rank: collectives");
}

TEST(Trace, KeepsNanosecondsAndQuotesTexts) {
  RankRecord record{.host = "a\"b\\", .opened_ns = 86'400'000'000'000};
  record.calls.push_back({.state = EntryState::kCompleted,
                          .started_ns = 86'400'000'001'002,
                          .ended_ns = 86'400'000'001'003});
  record.calls.push_back({.state = EntryState::kCompleted, .started_ns = INT64_MIN});
  EXPECT_EQ(events({record}, "X")[0].at("ts"), 1.002);
  EXPECT_EQ(events({record}, "X")[0].at("dur"), 0.001);
  EXPECT_EQ(events({record}, "M")[0].at("args").at("name"), "rank 0 on a\"b\\");
  EXPECT_EQ(events({}, "M").size(), 0u);
}

// What a rank that is killed leaves, and one that leaves its job.
TEST(TraceFile, IsWholeFromTheBeginningOn) {
  const unisono::test::TemporaryFolder folder;
  auto recorder = Recorder::open({.trace_folder = folder.path()}, {"job", 3, 4, "host"});
  ASSERT_TRUE(recorder) << recorder.error().message();
  const auto read = [&] {
    std::ifstream file(folder / "job-3.json");
    return nlohmann::json::parse(file, nullptr, false);
  };
  const nlohmann::json before = read();
  EXPECT_FALSE(before.is_discarded());
  EXPECT_EQ(before.value("traceEvents", nlohmann::json()).size(), 0u);
  CallRecorder calls(recorder->get(), 0);
  calls.open(4, 3);
  calls.end(calls.begin(all_reduce(0)), Status());
  (*recorder)->close();
  EXPECT_EQ(read().value("traceEvents", nlohmann::json()).size(), 3u);
}

TEST(TraceFile, ThatCannotBeWrittenIsNamed) {
  const unisono::test::TemporaryFolder folder;
  unisono::test::LogGuard log;
  auto recorder = Recorder::open({.trace_folder = folder.path()}, {"job", 3, 4, "host"});
  ASSERT_TRUE(recorder) << recorder.error().message();
  log.expect("not whole");
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit little{.rlim_cur = 64, .rlim_max = limit.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &little), 0);
  (*recorder)->close();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(log.lines(),
              testing::ElementsAre(testing::HasSubstr("rank 3: " + (folder / "job-3.json") +
                                                      " (UNISONO_TRACE) is not "
                                                      "whole: File too large; ")));
}

}  // namespace
}  // namespace unisono::recorder::test
