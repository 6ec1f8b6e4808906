// What a job leaves in its ranks' records: every call, whichever way it took.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "base/unique_fd.h"
#include "recorder/blame.h"
#include "recorder/recorder.h"
#include "tests/support/rank_job.h"
#include "tests/support/setting.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tested_transports.h"

namespace unisono::test {
namespace {

using recorder::EntryState;
using recorder::RankRecord;
using recorder::RecordedCall;
using testing::ElementsAre;
using testing::HasSubstr;

// By rank.
std::vector<recorder::Witness> records_in(const std::string& folder) {
  std::vector<recorder::Witness> witnesses;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() != recorder::kFileSuffix) continue;
    const UniqueFd open(::open(file.path().c_str(), O_RDONLY | O_CLOEXEC));
    Result<RankRecord> record = recorder::read_record(open.get(), file.path());
    EXPECT_TRUE(record) << record.error().message();
    if (record) witnesses.push_back({std::move(*record), recorder::Life::kUnknown});
  }
  std::sort(witnesses.begin(), witnesses.end(),
            [](const auto& a, const auto& b) { return a.record.rank < b.record.rank; });
  return witnesses;
}

// The collectives of each communicator, one by one.
std::map<std::uint32_t, std::vector<std::string>> collectives_of(const RankRecord& record) {
  std::map<std::uint32_t, std::vector<std::string>> calls;
  for (const RecordedCall& call : record.calls) {
    if (call.is_message()) continue;
    for (std::uint64_t i = 0; i < call.times; ++i) {
      calls[call.communicator].push_back(describe(call.record, call.first_sequence + i));
    }
  }
  return calls;
}

std::vector<std::string> messages_of(const RankRecord& record) {
  std::vector<std::string> messages;
  for (const RecordedCall& call : record.calls) {
    if (call.is_message()) messages.push_back(call.text() + " x" + std::to_string(call.times));
  }
  return messages;
}

class RecordedCalls : public testing::TestWithParam<std::string> {};

TEST_P(RecordedCalls, AreTheSameOnAllRanksAndNoneIsLeftOut) {
  const TemporaryFolder folder;
  const Setting place("UNISONO_RECORDER", folder.path());
  run_ranks(3, GetParam(), [](Communicator& comm) {
    std::vector<float> few(4), many(200'000);
    for (int i = 0; i < 100; ++i) comm.all_reduce(few, ops::sum);
    comm.all_reduce(many, ops::sum);
    Request first = comm.all_reduce_async(few, ops::sum);
    Request second = comm.broadcast_async(many, 1);
    second.wait();
    first.wait();
    Communicator pair = comm.split(comm.rank() == 2 ? 1 : 0);
    pair.barrier();
    for (int i = 0; i < 5 && comm.rank() == 0; ++i) comm.send(few, 1, 7);
    for (int i = 0; i < 5 && comm.rank() == 1; ++i) comm.receive(few, 0, 7);
    comm.barrier();
  });
  const std::vector<recorder::Witness> witnesses = records_in(folder.path());
  ASSERT_EQ(witnesses.size(), 3u);
  std::uint64_t few = 0, many = 0, broadcasts = 0;
  for (const recorder::Witness& each : witnesses) {
    const RankRecord& record = each.record;
    EXPECT_NE(record.closed_ns, 0);
    EXPECT_EQ(record.damaged, 0);
    for (const RecordedCall& call : record.calls) {
      EXPECT_EQ(call.state, EntryState::kCompleted) << call.text();
      if (record.rank != 0) continue;
      few += call.text().find("all_reduce(count 4,") == 0 ? call.times : 0;
      many += call.text().find("all_reduce(count 200000,") == 0 ? call.times : 0;
      broadcasts += call.text().find("broadcast(count 200000, float32, root 1)") == 0;
    }
    for (const recorder::RecordedCommunicator& communicator : record.communicators) {
      EXPECT_FALSE(communicator.is_open);
    }
  }
  EXPECT_EQ(few, 101u);
  EXPECT_EQ(many, 1u);
  EXPECT_EQ(broadcasts, 1u);
  const auto first = collectives_of(witnesses[0].record);
  EXPECT_EQ(collectives_of(witnesses[1].record), first);
  const std::uint32_t world = first.begin()->first;
  EXPECT_EQ(collectives_of(witnesses[2].record)[world], first.at(world));
  // A number each, in order.
  for (std::size_t i = 0; i < first.at(world).size(); ++i) {
    EXPECT_THAT(first.at(world)[i], HasSubstr("(operation " + std::to_string(i) + ")"));
  }
  std::uint64_t sent = 0, received = 0;
  for (const RecordedCall& call : witnesses[0].record.calls) sent += call.is_message() * call.times;
  for (const RecordedCall& call : witnesses[1].record.calls) {
    received += call.is_message() * call.times;
  }
  EXPECT_EQ(sent, 5u);
  EXPECT_EQ(received, 5u);
  EXPECT_THAT(messages_of(witnesses[0].record)[0],
              HasSubstr("send(count 4, float32) to rank 1 with tag 7"));
  EXPECT_THAT(messages_of(witnesses[1].record)[0],
              HasSubstr("receive(count 4, float32) from rank 0 with tag 7"));
}

TEST_P(RecordedCalls, ThatFailNameTheRankThatLeft) {
  const TemporaryFolder folder;
  const Setting place("UNISONO_RECORDER", folder.path()), trace("UNISONO_TRACE", folder.path());
  run_ranks(3, GetParam(), [](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 2) return;
    std::vector<float> data(4);
    EXPECT_THROW(comm.all_reduce(data, ops::sum), Error);
  });
  const std::vector<recorder::Witness> witnesses = records_in(folder.path());
  ASSERT_EQ(witnesses.size(), 3u);
  for (const int rank : {0, 1}) {
    const RecordedCall& last = witnesses[static_cast<std::size_t>(rank)].record.calls.back();
    EXPECT_EQ(last.state, EntryState::kFailed);
    EXPECT_EQ(last.code, ErrorCode::kRankLeft);
    EXPECT_EQ(last.failed_rank, 2);
  }
  const recorder::Verdict verdict = recorder::blame(witnesses);
  EXPECT_EQ(verdict.kind, recorder::Verdict::Kind::kStopped);
  EXPECT_THAT(verdict.first, ElementsAre(2));
  // The traces of ranks that failed are written as well.
  for (const recorder::Witness& each : witnesses) {
    std::filesystem::path path = each.record.name;
    std::ifstream file(path.replace_extension(".json"));
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    EXPECT_THAT(text, HasSubstr(R"("name":"barrier")")) << path;
    EXPECT_EQ(text.find(R"("error":"rank left")") != std::string::npos, each.record.rank != 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, RecordedCalls, testing::ValuesIn(tested_transports()),
                         [](const auto& each) { return each.param; });

// A call in flight that its rank has left in the middle is seen as such.
TEST(RecordedCallsOfOne, ShowARequestAsRunningUntilItIsOver) {
  const TemporaryFolder folder;
  const Setting place("UNISONO_RECORDER", folder.path());
  run_ranks(2, "loopback", [&](Communicator& comm) {
    std::vector<float> data(4);
    comm.barrier();  // both have joined
    if (comm.rank() == 1) {
      Request request = comm.receive_async(data, 0, 3);
      const RankRecord record = records_in(folder.path()).at(1).record;
      EXPECT_EQ(record.calls.back().state, EntryState::kStarted);
      EXPECT_EQ(record.calls.back().text(), "receive(count 4, float32) from rank 0 with tag 3");
      comm.barrier();
      request.wait();
      return;
    }
    comm.barrier();
    comm.send(data, 1, 3);
  });
}

TEST(RecordedCallsOfOne, AForkedChildLeavesItsParentsRecordAlone) {
  const TemporaryFolder folder;
  const Setting place("UNISONO_RECORDER", folder.path());
  Communicator comm = init({.rank = 0, .size = 1});
  comm.barrier();
  const auto calls = [&] { return records_in(folder.path()).at(0).record.calls.size(); };
  const std::size_t before = calls();
  const auto row = [&] { return records_in(folder.path()).at(0).record.communicators.at(0); };
  const std::uint64_t begun = row().begun;
  const pid_t child = fork();
  if (child == 0) {
    int refused = 1;
    try {
      comm.barrier();
    } catch (const Error&) {
      refused = 0;
    }
    { const Communicator moved = std::move(comm); }
    _exit(refused);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(calls(), before);
  EXPECT_TRUE(row().is_open);
  EXPECT_EQ(row().begun, begun);
  EXPECT_EQ(records_in(folder.path()).at(0).record.closed_ns, 0);
  comm.barrier();
  EXPECT_EQ(records_in(folder.path()).at(0).record.calls.back().state, EntryState::kCompleted);
}

}  // namespace
}  // namespace unisono::test
