// What is written is what is read, at any moment of it; what cannot be true is left out.
#include "tests/unit/recorder_record.h"

#include <gmock/gmock.h>

#include <cstring>
#include <random>
#include <thread>

#include "recorder/blame.h"
#include "recorder/trace.h"
#include "tests/support/seed.h"
#include "tools/blame/verdict_text.h"

namespace unisono::recorder::test {
namespace {

using testing::HasSubstr;

constexpr std::uint32_t kId = 9;

TEST(Record, TellsWhoseItIs) {
  RecordingRank rank(2, 4);
  const RankRecord read = rank.read();
  EXPECT_EQ(read.job, "job");
  EXPECT_EQ(read.host, "host");
  EXPECT_EQ(read.rank, 2);
  EXPECT_EQ(read.world_size, 4);
  EXPECT_EQ(read.pid, getpid());
  EXPECT_NE(read.process_start, 0u);
  EXPECT_EQ(read.closed_ns, 0);
  EXPECT_TRUE(read.calls.empty());
  rank.recorder.close();
  EXPECT_GE(rank.read().closed_ns, read.opened_ns);
}

TEST(Record, ShowsACallAsRunningUntilItEnds) {
  RecordingRank rank(0, 2);
  CallRecorder calls(&rank.recorder, kId);
  calls.open(2, 0);
  const std::uint64_t entry = calls.begin(all_reduce(5));
  RankRecord read = rank.read();
  ASSERT_EQ(read.calls.size(), 1u);
  EXPECT_EQ(read.calls[0].state, EntryState::kStarted);
  EXPECT_EQ(read.calls[0].text(),
            "all_reduce(count 4, float32, sum) (operation 5) of communicator 9");
  EXPECT_EQ(read.calls[0].communicator, kId);
  EXPECT_GE(read.calls[0].started_ns, read.opened_ns);
  ASSERT_NE(read.find(kId), nullptr);
  EXPECT_EQ(read.find(kId)->begun, 6u);

  calls.end(entry, Status());
  read = rank.read();
  EXPECT_EQ(read.calls[0].state, EntryState::kCompleted);
  EXPECT_GE(read.calls[0].ended_ns, read.calls[0].started_ns);
}

TEST(Record, NamesTheFailureAndItsRank) {
  RecordingRank rank(0, 4);
  CallRecorder calls(&rank.recorder, kId);
  calls.open(4, 0);
  calls.end(calls.begin(all_reduce(0)), Status(ErrorCode::kRankFailed, "gone", 3));
  calls.end(calls.begin(all_reduce(1)), Status(ErrorCode::kTimeout, "late"));
  const RankRecord read = rank.read();
  ASSERT_EQ(read.calls.size(), 2u);
  EXPECT_EQ(read.calls[0].state, EntryState::kFailed);
  EXPECT_EQ(read.calls[0].code, ErrorCode::kRankFailed);
  EXPECT_EQ(read.calls[0].failed_rank, 3);
  EXPECT_EQ(read.calls[1].code, ErrorCode::kTimeout);
  EXPECT_EQ(read.calls[1].failed_rank, -1);
}

TEST(Record, QuickCallsShareAnEntryWhileTheyRepeatEachOther) {
  RecordingRank rank(0, 2);
  CallRecorder calls(&rank.recorder, kId);
  calls.open(2, 0);
  CallRecord record = all_reduce_of(4);
  for (std::uint64_t i = 0; i < 100; ++i) {
    record.history = static_cast<std::uint32_t>(i);  // what came before is not part of it
    calls.begin_quick(record, i);
    EXPECT_EQ(rank.read().calls.back().state, EntryState::kStarted);
    calls.end_quick();
  }
  RankRecord read = rank.read();
  ASSERT_EQ(read.calls.size(), 1u);
  EXPECT_EQ(read.calls[0].times, 100u);
  EXPECT_EQ(read.calls[0].first_sequence, 0u);
  EXPECT_EQ(read.calls[0].sequence(), 99u);
  EXPECT_EQ(read.calls[0].state, EntryState::kCompleted);
  EXPECT_GT(read.calls[0].ended_ns, 0);
  EXPECT_EQ(read.find(kId)->begun, 100u);

  calls.begin_quick(all_reduce_of(5), 100);  // another call
  calls.end_quick();
  calls.end(calls.begin(all_reduce(101, 5)), Status());  // one with an entry of its own
  calls.begin_quick(all_reduce_of(5), 102);
  calls.end_quick();
  read = rank.read();
  ASSERT_EQ(read.calls.size(), 4u);
  for (std::size_t i = 1; i < 4; ++i) {
    EXPECT_EQ(read.calls[i].times, 1u);
    EXPECT_EQ(read.calls[i].sequence(), 99 + i);
  }
}

TEST(Record, AQuickCallThatGoesOnGetsItsOwnEntry) {
  RecordingRank rank(0, 2);
  CallRecorder calls(&rank.recorder, kId);
  calls.open(2, 0);
  for (std::uint64_t i = 0; i < 3; ++i) {
    calls.begin_quick(all_reduce_of(4), i);
    if (i < 2) calls.end_quick();
  }
  const std::uint64_t entry = calls.leave_quick();
  RankRecord read = rank.read();
  ASSERT_EQ(read.calls.size(), 2u);
  EXPECT_EQ(read.calls[0].times, 2u);
  EXPECT_EQ(read.calls[0].state, EntryState::kCompleted);
  EXPECT_EQ(read.calls[1].sequence(), 2u);
  EXPECT_EQ(read.calls[1].state, EntryState::kStarted);
  calls.end(entry, Status());
  EXPECT_EQ(rank.read().calls[1].state, EntryState::kCompleted);

  // The first of its kind keeps the entry that it has.
  calls.begin_quick(all_reduce_of(8), 3);
  calls.end(calls.leave_quick(), Status());
  calls.begin_quick(all_reduce_of(8), 4);
  calls.end_quick(Status(ErrorCode::kSystem, "", 0));
  read = rank.read();
  ASSERT_EQ(read.calls.size(), 4u);
  EXPECT_EQ(read.calls[2].state, EntryState::kCompleted);
  EXPECT_EQ(read.calls[3].state, EntryState::kFailed);
  EXPECT_EQ(read.find(kId)->begun, 5u);
}

TEST(Record, MessagesOfAKindShareAnEntry) {
  RecordingRank rank(0, 2);
  CallRecorder calls(&rank.recorder, kId);
  calls.open(2, 0);
  const Operation sent = message(Collective::kSend, 1), got = message(Collective::kReceive, 1);
  for (int i = 0; i < 10; ++i) {
    calls.note_message(sent.record, sent.peer, sent.tag);
    calls.note_message(got.record, got.peer, got.tag);
  }
  calls.note_message(sent.record, sent.peer, sent.tag + 1);
  const RankRecord read = rank.read();
  ASSERT_EQ(read.calls.size(), 3u);
  EXPECT_EQ(read.calls[0].times, 10u);
  EXPECT_EQ(read.calls[0].text(), "send(count 4, float32) to rank 1 of communicator 9 with tag 7");
  EXPECT_EQ(read.calls[1].times, 10u);
  EXPECT_EQ(read.calls[1].text(),
            "receive(count 4, float32) from rank 1 of communicator 9 with tag 7");
  EXPECT_EQ(read.calls[2].tag, 8u);
  EXPECT_EQ(read.find(kId)->begun, 0u);
}

TEST(Record, HoldsTheLastOperationsOfAllCommunicators) {
  RecordingRank rank(0, 2);
  CallRecorder old(&rank.recorder, 1), busy(&rank.recorder, 2);
  old.open(2, 0);
  busy.open(2, 0);
  const std::uint64_t forgotten = old.begin(all_reduce(0));
  old.begin_quick(all_reduce_of(4), 1);
  old.end_quick();
  for (std::uint64_t i = 0; i < kEntries; ++i) busy.end(busy.begin(all_reduce(i)), Status());
  old.end(forgotten, Status(ErrorCode::kSystem, ""));  // its place is another's
  RankRecord read = rank.read();
  ASSERT_EQ(read.calls.size(), kEntries);
  for (const RecordedCall& each : read.calls) {
    EXPECT_EQ(each.communicator, 2u);
    EXPECT_EQ(each.state, EntryState::kCompleted);
  }
  EXPECT_EQ(read.calls.back().sequence(), kEntries - 1);
  EXPECT_EQ(read.find(1)->begun, 2u);  // that is known all the same
  old.begin_quick(all_reduce_of(4), 2);
  old.end_quick();
  read = rank.read();
  EXPECT_EQ(read.calls.back().sequence(), 2u);
  EXPECT_EQ(read.calls.back().times, 1u);
}

TEST(Record, RowsOfClosedCommunicatorsAreUsedAgain) {
  RecordingRank rank(0, 2);
  CallRecorder kept(&rank.recorder, 1);
  kept.open(2, 1);
  for (std::uint32_t id = 2; id < 3 * kCommunicators; ++id) {
    CallRecorder calls(&rank.recorder, id);
    calls.open(3, 2);
    calls.end(calls.begin(all_reduce(0)), Status());
  }
  const RankRecord read = rank.read();
  EXPECT_EQ(read.communicators.size(), kCommunicators);
  ASSERT_NE(read.find(1), nullptr);
  EXPECT_TRUE(read.find(1)->is_open);
  EXPECT_EQ(read.find(1)->member, 1);
  ASSERT_NE(read.find(3 * kCommunicators - 1), nullptr);
  EXPECT_FALSE(read.find(3 * kCommunicators - 1)->is_open);
  EXPECT_EQ(read.damaged, 0);
}

// As a step of training alternates between its groups.
TEST(Record, CallsOfSeveralCommunicatorsInTurnShareAnEntryOfEach) {
  RecordingRank rank(0, 2);
  CallRecorder one(&rank.recorder, 1), other(&rank.recorder, 2);
  one.open(2, 0);
  other.open(2, 0);
  for (std::uint64_t i = 0; i < 3; ++i) {
    for (CallRecorder* const calls : {&one, &other}) {
      calls->begin_quick(all_reduce_of(4), i);
      calls->end_quick();
      const RankRecord read = rank.read();
      EXPECT_EQ(read.last_call()->communicator, calls == &one ? 1u : 2u);
      EXPECT_EQ(read.last_call()->sequence(), i);
    }
  }
  ASSERT_EQ(rank.read().calls.size(), 2u);
  EXPECT_EQ(rank.read().calls[0].times, 3u);
  one.begin_quick(all_reduce_of(5), 3);
  one.end_quick();
  EXPECT_EQ(rank.read().last_call()->record.count, 5u);
}

// Else it could not be told from one that has stopped there.
TEST(Record, WhoGoesOnAfterAFailureHasANewEntry) {
  RecordingRank rank(0, 2);
  CallRecorder one(&rank.recorder, 1), other(&rank.recorder, 2);
  one.open(2, 0);
  other.open(2, 0);
  const std::uint64_t fails_later = other.begin(all_reduce(0));
  for (std::uint64_t i = 0; i < 2; ++i) {
    one.begin_quick(all_reduce_of(4), i);
    one.end_quick();
  }
  other.end(fails_later, Status(ErrorCode::kRankFailed, "", 1));
  one.begin_quick(all_reduce_of(4), 2);
  one.end_quick();
  const RankRecord read = rank.read();
  ASSERT_EQ(read.calls.size(), 3u);
  EXPECT_EQ(read.last_call(), &read.calls[2]);
  EXPECT_EQ(read.calls[2].first_sequence, 2u);
}

TEST(Record, WhoGoesOnWithMessagesAfterAFailureHasNewEntries) {
  RecordingRank rank(0, 2);
  CallRecorder one(&rank.recorder, 1), other(&rank.recorder, 2);
  one.open(2, 0);
  other.open(2, 0);
  const std::uint64_t fails_later = other.begin(all_reduce(0));
  const Operation sent = message(Collective::kSend, 1), got = message(Collective::kReceive, 1);
  const auto exchange = [&] {
    one.note_message(sent.record, sent.peer, sent.tag);
    one.note_message(got.record, got.peer, got.tag);
  };
  for (int i = 0; i < 2; ++i) exchange();
  other.end(fails_later, Status(ErrorCode::kRankFailed, "", 1));
  for (int i = 0; i < 2; ++i) exchange();
  const RankRecord read = rank.read();
  ASSERT_EQ(read.calls.size(), 5u);
  for (const std::size_t at : {1, 2, 3, 4}) EXPECT_EQ(read.calls[at].times, 2u);
  const std::vector<Witness> witnesses{{read, Life::kRuns}};
  EXPECT_EQ(blame(witnesses).kind, Verdict::Kind::kIdle);
}

TEST(Record, TheLastCallIsTheNewestWhereItsEntryIsGone) {
  RankRecord record;
  EXPECT_EQ(record.last_call(), nullptr);
  record.calls.push_back({.number = 5});
  record.calls.push_back({.number = 6});
  for (const std::uint64_t last : {0, 4, 7}) {
    record.last = last;
    EXPECT_EQ(record.last_call(), &record.calls[1]) << last;
  }
}

TEST(Record, ReadingAnewKeepsTheLastCallWhereALaterOneWasNotRead) {
  const Result<UniqueFd> memory = make_sealed_memory();
  ASSERT_TRUE(memory);
  RecordPlace place;
  ASSERT_TRUE(parse_announcement(announce(memory->get()), &place.handed_fd, &place.inode));
  const auto recorder = Recorder::open(place, {"job", 0, 2, "host"});
  ASSERT_TRUE(recorder);
  CallRecorder one(recorder->get(), 1), other(recorder->get(), 2);
  one.open(2, 0);
  other.open(2, 0);
  std::uint64_t sequence = 0;
  const auto call = [&](CallRecorder& calls, std::uint64_t count) {
    calls.begin_quick(all_reduce_of(count), &calls == &one ? sequence++ : 0);
    calls.end_quick();
  };
  call(one, 4);
  call(other, 4);
  call(one, 4);
  Result<RankRecord> read = read_record(memory->get(), "record");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->last_call()->number, 1u);
  call(one, 5);
  update_record(memory->get(), &*read);
  EXPECT_EQ(read->last_call()->number, 1u);
}

// The lock is given away meanwhile, and others may have made many calls.
TEST(Record, AQuickCallEndsInNoEntryButItsOwn) {
  RecordingRank rank(0, 2);
  CallRecorder quick(&rank.recorder, 1), busy(&rank.recorder, 2);
  quick.open(2, 0);
  busy.open(2, 0);
  for (const bool is_left : {false, true}) {
    quick.begin_quick(all_reduce_of(4), is_left ? 1 : 0);
    for (std::uint64_t i = 0; i < kEntries; ++i) busy.begin(all_reduce(i));
    if (is_left) quick.leave_quick();
    if (!is_left) quick.end_quick();
    for (const RecordedCall& each : rank.read().calls) {
      EXPECT_EQ(each.state, EntryState::kStarted);
    }
  }
}

TEST(Record, TimesThatAreNotKnownAreNotTold) {
  RecordingRank rank(0, 2);
  CallRecorder calls(&rank.recorder, kId);
  calls.open(2, 0);
  for (std::uint64_t i = 0; i < 2; ++i) {
    calls.begin_quick(all_reduce_of(4), i);
    calls.end_quick();
  }
  EXPECT_EQ(rank.read().calls[0].since_ns(), 0);
  calls.begin(all_reduce(2));
  EXPECT_EQ(rank.read().calls[1].since_ns(), rank.read().calls[1].started_ns);
}

TEST(Record, OneThatIsOffRecordsNothing) {
  Recorder off(nullptr, {});
  for (Recorder* const recorder : {&off, static_cast<Recorder*>(nullptr)}) {
    CallRecorder calls(recorder, kId);
    calls.open(2, 0);
    EXPECT_EQ(calls.begin(all_reduce(0)), 0u);
    calls.end(0, Status());
    calls.begin_quick(all_reduce_of(4), 1);
    calls.end_quick();
    calls.begin_quick(all_reduce_of(4), 2);
    EXPECT_EQ(calls.leave_quick(), 0u);
    calls.note_message(all_reduce_of(4), 1, 0);
  }
}

// A reader of a living rank: every call that it sees is one that was made.
TEST(Record, IsWholeWhileItIsWritten) {
  const Result<UniqueFd> memory = make_sealed_memory();
  ASSERT_TRUE(memory);
  RecordPlace place;
  ASSERT_TRUE(parse_announcement(announce(memory->get()), &place.handed_fd, &place.inode));
  const auto recorder = Recorder::open(place, {"job", 0, 2, "host"});
  ASSERT_TRUE(recorder);
  std::jthread writer([&](const std::stop_token& ends) {
    CallRecorder calls(recorder->get(), kId);
    calls.open(2, 0);
    for (std::uint64_t i = 0; !ends.stop_requested(); ++i) {
      const bool is_quick = i % 3 != 0;
      if (is_quick) calls.begin_quick(all_reduce_of(i / 9), i);
      if (is_quick) calls.end_quick();
      if (!is_quick) calls.end(calls.begin(all_reduce(i, i / 9)), Status());
    }
  });
  std::uint64_t seen = 0;
  for (int i = 0; i < 200 || seen < 2 * kEntries; ++i) {
    const Result<RankRecord> read = read_record(memory->get(), "record");
    ASSERT_TRUE(read);
    EXPECT_EQ(read->damaged, 0);
    for (const RecordedCall& each : read->calls) {
      ASSERT_EQ(each.record.count, each.first_sequence / 9);
      ASSERT_EQ(each.record.count, each.sequence() / 9);
      seen = std::max(seen, each.number);
    }
  }
}

TEST(Record, OfForeignBytesIsRefused) {
  RecordingRank rank(0, 2);
  const auto why = [&](auto change, std::size_t bytes = kRecordBytes) {
    std::vector<std::byte> memory = rank.memory;
    Header header;
    std::memcpy(&header, memory.data(), sizeof header);
    change(header);
    std::memcpy(memory.data(), &header, sizeof header);
    memory.resize(bytes);
    const Result<RankRecord> read = parse_record(memory, memory, "name");
    return read ? std::string("accepted") : read.error().message();
  };
  const auto nothing = [](Header&) {};
  EXPECT_EQ(why(nothing), "accepted");
  EXPECT_THAT(why(nothing, kRecordBytes - 1), HasSubstr("name: it has 274431 bytes"));
  EXPECT_THAT(why(nothing, 0), HasSubstr("it has 0 bytes"));
  EXPECT_THAT(why([](Header& h) { h.magic = 1; }), HasSubstr("no record"));
  EXPECT_THAT(why([](Header& h) { h.magic = 0; }), HasSubstr("no rank has joined"));
  EXPECT_THAT(why([](Header& h) { h.version = 1; }), HasSubstr("version 1"));
  EXPECT_THAT(why([](Header& h) { h.entries = 5; }), HasSubstr("size"));
  EXPECT_THAT(why([](Header& h) { h.world_size = 0; }), HasSubstr("rank 0 of 0"));
  EXPECT_THAT(why([](Header& h) { h.world_size = 1 << 30; }), HasSubstr("cannot be"));
  EXPECT_THAT(why([](Header& h) { h.rank = -1; }), HasSubstr("rank -1"));
  EXPECT_THAT(why([](Header& h) { h.rank = 2; }), HasSubstr("rank 2 of 2"));
}

TEST(Record, TextsThatDoNotEndOrWouldMoveACursorDoNoHarm) {
  RecordingRank rank(0, 2);
  Header header;
  std::memcpy(&header, rank.memory.data(), sizeof header);
  std::memset(header.job, '\x1b', sizeof header.job);
  std::memset(header.host, 'h', sizeof header.host);
  std::vector<std::byte> memory = rank.memory;
  std::memcpy(memory.data(), &header, sizeof header);
  const Result<RankRecord> read = parse_record(memory, memory, "name");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->job, std::string(kTextBytes, '?'));
  EXPECT_EQ(read->host, std::string(kTextBytes, 'h'));
}

// Behind a right header: whatever is read is within its bounds, and has a text.
TEST(Record, RandomRowsAreBounded) {
  RecordingRank rank(0, 2);
  const unisono::test::SeedTrace trace;
  std::mt19937_64 random = unisono::test::random_stream(1);
  std::vector<std::byte> memory = rank.memory;
  for (int round = 0; round < 20; ++round) {
    for (std::size_t at = kCommunicatorsAt; at < memory.size(); at += 8) {
      const std::uint64_t word = random() >> random() % 64;
      std::memcpy(memory.data() + at, &word, sizeof word);
    }
    // So that some rows pass the first check.
    for (std::size_t i = 0; i < kEntries; i += 2) {
      const std::uint64_t number = i + kEntries, progress = random() % 4 | Progress::kOnce;
      std::byte* const entry = memory.data() + kEntriesAt + i * sizeof(Entry);
      std::memcpy(entry, &number, sizeof number);
      std::memcpy(entry + sizeof number, &progress, sizeof progress);
    }
    const Result<RankRecord> read = parse_record(memory, memory, "name");
    ASSERT_TRUE(read);
    EXPECT_GT(read->damaged, 0);
    for (const RecordedCall& each : read->calls) {
      EXPECT_GE(each.times, 1u);
      EXPECT_LT(each.failed_rank, 65536);
      EXPECT_FALSE(each.text().empty());
    }
    for (const Life life : {Life::kRuns, Life::kHeld, Life::kGone}) {
      const std::vector<Witness> witnesses{{*read, life}};
      const Verdict verdict = blame(witnesses);
      EXPECT_FALSE(unisono::blame::sentences_of(verdict, INT64_MAX).empty());
    }
    EXPECT_TRUE(trace_of({&*read, 1}).ends_with("]}\n"));
  }
}

}  // namespace
}  // namespace unisono::recorder::test
