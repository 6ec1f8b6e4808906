// Verdicts as data: records of ranks go in, and who stopped first comes out.
#include <gmock/gmock.h>

#include <initializer_list>
#include <memory>

#include "recorder/blame.h"
#include "tests/unit/recorder_record.h"
#include "tools/blame/verdict_text.h"

namespace unisono::recorder::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using testing::UnorderedElementsAre;

constexpr std::uint32_t kWorld = 0;

// Ranks of one job with a communicator of all of them.
class Job {
 public:
  explicit Job(int size) {
    for (int rank = 0; rank < size; ++rank) {
      ranks_.push_back(std::make_unique<RecordingRank>(rank, size));
      worlds_.push_back(std::make_unique<CallRecorder>(&ranks_.back()->recorder, kWorld));
      worlds_.back()->open(size, rank);
      lives_.push_back(Life::kRuns);
    }
  }

  CallRecorder& world(int rank) { return *worlds_[static_cast<std::size_t>(rank)]; }
  Recorder& recorder(int rank) { return ranks_[static_cast<std::size_t>(rank)]->recorder; }
  void make(int rank, std::uint64_t sequence) {
    world(rank).end(world(rank).begin(all_reduce(sequence)), Status());
  }
  void enter(int rank, std::uint64_t sequence) { world(rank).begin(all_reduce(sequence)); }
  void fail(int rank, std::uint64_t sequence, int failed_rank) {
    world(rank).end(world(rank).begin(all_reduce(sequence)),
                    Status(ErrorCode::kRankFailed, "", failed_rank));
  }
  // Ranks 0 and 1 hear of its failure, and call in a communicator of both.
  std::vector<std::unique_ptr<CallRecorder>> go_on_without_rank_2() {
    std::vector<std::unique_ptr<CallRecorder>> survivors;
    for (const int rank : {0, 1}) {
      fail(rank, 1, 2);
      survivors.push_back(std::make_unique<CallRecorder>(&recorder(rank), 7));
      survivors.back()->open(2, rank);
      survivors.back()->end(survivors.back()->begin(all_reduce(0)), Status());
    }
    return survivors;
  }
  void is(int rank, Life life) { lives_[static_cast<std::size_t>(rank)] = life; }

  // Of those ranks whose records there are.
  Verdict judge(std::vector<int> of = {}) {
    witnesses_.clear();
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      const bool is_there =
          of.empty() || std::find(of.begin(), of.end(), static_cast<int>(i)) != of.end();
      if (is_there) witnesses_.push_back({ranks_[i]->read(), lives_[i]});
    }
    return blame(witnesses_);
  }
  // The same with all calls of a communicator so many seconds later.
  Verdict judge_later(std::uint32_t communicator, std::int64_t seconds) {
    judge();
    for (Witness& witness : witnesses_) {
      for (RecordedCall& call : witness.record.calls) {
        if (call.communicator != communicator) continue;
        call.started_ns += seconds * 1'000'000'000;
        if (call.ended_ns != 0) call.ended_ns += seconds * 1'000'000'000;
      }
    }
    return blame(witnesses_);
  }
  std::vector<std::string> sentences(const Verdict& verdict, std::int64_t now_ns = 0) {
    return blame::sentences_of(verdict, now_ns);
  }

 private:
  static Verdict blame(std::span<const Witness> witnesses) { return recorder::blame(witnesses); }

  std::vector<std::unique_ptr<RecordingRank>> ranks_;
  std::vector<std::unique_ptr<CallRecorder>> worlds_;
  std::vector<Life> lives_;
  std::vector<Witness> witnesses_;
};

TEST(Blame, ALivingRankThatHasNotArrivedIsMissing) {
  Job job(4);
  for (const int rank : {0, 1, 2, 3}) job.make(rank, 0);
  for (const int rank : {0, 1, 3}) job.enter(rank, 1);
  const Verdict verdict = job.judge();
  EXPECT_EQ(verdict.kind, Verdict::Kind::kMissing);
  EXPECT_THAT(verdict.first, ElementsAre(2));
  EXPECT_THAT(verdict.standings[0].waits_for, ElementsAre(2));
  EXPECT_TRUE(verdict.standings[3].is_held_up);
  EXPECT_FALSE(verdict.standings[2].is_held_up);
  EXPECT_THAT(job.sentences(verdict),
              ElementsAre("rank 2 is missing: it has not arrived; its last call was "
                          "all_reduce(count 4, float32, sum) (operation 0)",
                          "ranks 0, 1 and 3 wait for rank 2 in all_reduce(count 4, float32, sum) "
                          "(operation 1)"));
}

TEST(Blame, AKilledRankStoppedFirstThoughOthersHaveEndedSince) {
  Job job(4);
  for (const int rank : {0, 1, 2, 3}) job.make(rank, 0);
  for (const int rank : {0, 1, 3}) {
    job.fail(rank, 1, 2);
    job.recorder(rank).close();
  }
  for (const int rank : {0, 1, 2, 3}) job.is(rank, Life::kGone);
  const Verdict verdict = job.judge();
  EXPECT_EQ(verdict.kind, Verdict::Kind::kStopped);
  EXPECT_THAT(verdict.first, ElementsAre(2));
  EXPECT_THAT(job.sentences(verdict),
              ElementsAre(HasSubstr("rank 2 stopped first: it was ended after all_reduce"),
                          HasSubstr("ranks 0, 1 and 3 failed because of rank 2 in all_reduce")));
}

// Rank 0 waits in grow(), which is no call, for the successor of rank 2.
TEST(Blame, AKilledRankStoppedFirstThoughSurvivorsWaitForEachOther) {
  Job job(3);
  for (const int rank : {0, 1, 2}) job.make(rank, 0);
  const auto survivors = job.go_on_without_rank_2();
  survivors[1]->begin(all_reduce(1));
  EXPECT_THAT(job.judge().first, ElementsAre(0));
  job.is(2, Life::kGone);
  for (const Life life : {Life::kRuns, Life::kUnknown}) {
    job.is(0, life);
    const Verdict verdict = job.judge();
    EXPECT_EQ(verdict.kind, Verdict::Kind::kStopped);
    EXPECT_THAT(verdict.first, ElementsAre(2, 0));
    EXPECT_THAT(job.sentences(verdict),
                ElementsAre(HasSubstr("rank 2 stopped first: it was ended after all_reduce"),
                            HasSubstr(life == Life::kRuns ? "besides, rank 0 has not arrived"
                                                          : "besides, rank 0 was last seen after"),
                            HasSubstr("rank 1 waits for rank 0 in all_reduce")));
  }
}

// The survivors have made calls for an hour since, and then rank 0 is stuck.
TEST(Blame, ARankThatWasEndedLongBeforeIsNotTheCause) {
  Job job(3);
  for (const int rank : {0, 1, 2}) job.make(rank, 0);
  const auto survivors = job.go_on_without_rank_2();
  survivors[1]->begin(all_reduce(1));
  job.is(2, Life::kGone);
  EXPECT_THAT(job.judge().first, ElementsAre(2, 0));
  const Verdict verdict = job.judge_later(7, 3600);
  EXPECT_EQ(verdict.kind, Verdict::Kind::kMissing);
  EXPECT_THAT(verdict.first, ElementsAre(0, 2));
  EXPECT_THAT(job.sentences(verdict),
              ElementsAre(HasSubstr("rank 0 is missing: it has not arrived"),
                          HasSubstr("besides, rank 2 was ended after"),
                          HasSubstr("rank 1 waits for rank 0")));
}

TEST(Blame, ARankKilledInACallIsWaitedForByAllWhoAreInIt) {
  Job job(3);
  for (const int rank : {0, 1, 2}) job.enter(rank, 0);
  job.is(1, Life::kGone);
  const Verdict verdict = job.judge();
  EXPECT_EQ(verdict.kind, Verdict::Kind::kStopped);
  EXPECT_THAT(verdict.first, ElementsAre(1));
  EXPECT_THAT(verdict.standings[0].waits_for, ElementsAre(1));
  EXPECT_THAT(job.sentences(verdict)[0], HasSubstr("rank 1 stopped first: it was ended in all_"));
}

TEST(Blame, AHeldRankIsMissingInTheCallThatItIsIn) {
  Job job(2);
  for (const int rank : {0, 1}) job.enter(rank, 0);
  EXPECT_EQ(job.judge().kind, Verdict::Kind::kBusy);
  job.is(1, Life::kHeld);
  const Verdict verdict = job.judge();
  EXPECT_EQ(verdict.kind, Verdict::Kind::kMissing);
  EXPECT_THAT(verdict.first, ElementsAre(1));
  EXPECT_THAT(job.sentences(verdict)[0], HasSubstr("is held (SIGSTOP or a debugger) in all_"));
}

// Rank 0 waits for 1 in one communicator, which waits for 2 in another.
TEST(Blame, FollowsWaitsThroughCommunicators) {
  Job job(3);
  CallRecorder of_1(&job.recorder(1), 5), of_2(&job.recorder(2), 5);
  of_1.open(2, 0);
  of_2.open(2, 1);
  job.enter(0, 0);
  of_1.begin(all_reduce(0));
  job.make(2, 0);
  const Verdict verdict = job.judge();
  EXPECT_EQ(verdict.kind, Verdict::Kind::kMissing);
  EXPECT_THAT(verdict.first, ElementsAre(2));
  EXPECT_THAT(verdict.standings[0].waits_for, ElementsAre(1));
  EXPECT_THAT(verdict.standings[1].waits_for, ElementsAre(2));
}

// Its ranks and operations are numbered apart from those of the job.
TEST(Blame, ACallIsNamedWithItsCommunicator) {
  Job job(4);
  CallRecorder of_2(&job.recorder(2), 5), of_3(&job.recorder(3), 5);
  of_2.open(2, 0);
  of_3.open(2, 1);
  const std::uint64_t sent = of_2.begin(message(Collective::kSend, 1));
  EXPECT_EQ(job.sentences(job.judge())[1],
            "rank 2 waits for rank 3 in send(count 4, float32) to rank 1 of communicator 5 with "
            "tag 7");
  of_2.end(sent, Status());
  for (const int rank : {0, 1, 2, 3}) job.make(rank, 0);
  const std::uint64_t reduced = of_2.begin(all_reduce(0));
  EXPECT_EQ(job.sentences(job.judge())[1],
            "rank 2 waits for rank 3 in all_reduce(count 4, float32, sum) (operation 0) of "
            "communicator 5");
  of_2.end(reduced, Status());
  Operation broadcast = all_reduce(1);
  broadcast.record.collective = static_cast<std::uint8_t>(Collective::kBroadcast);
  broadcast.record.root = broadcast.peer = 1;
  of_2.begin(broadcast);
  EXPECT_EQ(job.sentences(job.judge())[1],
            "rank 2 waits for rank 3 in broadcast(count 4, float32, root 1) (operation 1) of "
            "communicator 5 (the root as it numbers ranks)");
}

TEST(Blame, AMemberThatHasClosedTheCommunicatorIsToldFromOneThatIsLate) {
  Job job(2);
  CallRecorder of_0(&job.recorder(0), 5), of_1(&job.recorder(1), 5);
  for (CallRecorder* const each : {&of_0, &of_1}) {
    each->open(2, each == &of_1);
    each->end(each->begin(all_reduce(0)), Status());
  }
  of_0.begin(all_reduce(1));
  EXPECT_THAT(job.sentences(job.judge())[0], HasSubstr("rank 1 is missing: it has not arrived"));
  of_1.close();
  EXPECT_THAT(job.sentences(job.judge())[0],
              HasSubstr("rank 1 is missing: it has closed communicator 5, and has not arrived"));
  job.recorder(1).close();
  EXPECT_THAT(job.sentences(job.judge())[0], HasSubstr("it left its job after"));
}

TEST(Blame, WhoHangsIsToldFromWhoHasFailed) {
  for (const int failed : {0, 1}) {
    Job job(3);
    job.enter(1 - failed, 0);
    job.fail(failed, 0, 2);
    const std::string waits = "rank " + std::to_string(1 - failed) + " waits for rank 2 in ";
    const std::string fails = "rank " + std::to_string(failed) + " failed because of rank 2 in ";
    EXPECT_THAT(job.sentences(job.judge()),
                UnorderedElementsAre("rank 2 stopped first: it has made no call", StartsWith(waits),
                                     StartsWith(fails)));
  }
}

TEST(Blame, CallsOfSeveralCommunicatorsAreNotOne) {
  Job job(3);
  std::vector<std::unique_ptr<CallRecorder>> members;
  for (const int rank : {0, 1}) {
    for (const int member : {rank, 2}) {
      const auto id = static_cast<std::uint32_t>(5 + rank);
      members.push_back(std::make_unique<CallRecorder>(&job.recorder(member), id));
      members.back()->open(2, member == 2);
      if (member != 2) members.back()->begin(all_reduce(0));
    }
  }
  EXPECT_THAT(job.sentences(job.judge()),
              ElementsAre(StartsWith("rank 2 is missing"), StartsWith("rank 0 waits for rank 2 in"),
                          StartsWith("rank 1 waits for rank 2 in")));
}

// Records of several hosts that were brought together, hours after the job.
TEST(Blame, WhatIsNotKnownToLiveIsNotSaidToGoOn) {
  Job job(3);
  const std::int64_t hours_later = job.judge().standings[0].witness->record.opened_ns * 2;
  job.enter(2, 0);
  for (const int rank : {0, 1}) job.fail(rank, 0, 2);
  for (const int rank : {0, 1, 2}) job.is(rank, Life::kUnknown);
  EXPECT_THAT(job.sentences(job.judge(), hours_later)[0],
              AllOf(HasSubstr("rank 2 stopped first: it was last seen in all_reduce"),
                    Not(HasSubstr("since"))));
  Job other(2);
  other.enter(0, 0);
  for (const int rank : {0, 1}) other.is(rank, Life::kUnknown);
  EXPECT_THAT(other.sentences(other.judge(), hours_later),
              ElementsAre("rank 1 is missing: it has made no call",
                          AllOf(HasSubstr("rank 0 waits for rank 1"), Not(HasSubstr("since")))));
  other.is(0, Life::kRuns);
  EXPECT_THAT(other.sentences(other.judge(), hours_later)[1], HasSubstr("since"));
}

TEST(Blame, MessagesWaitForTheirPeers) {
  Job job(3);
  job.world(0).begin(message(Collective::kReceive, 1));
  job.world(1).begin(message(Collective::kReceive, -1));  // from anybody
  const Verdict verdict = job.judge();
  EXPECT_EQ(verdict.kind, Verdict::Kind::kMissing);
  EXPECT_THAT(verdict.first, ElementsAre(1));
  EXPECT_THAT(verdict.standings[1].waits_for, IsEmpty());
  EXPECT_TRUE(verdict.standings[1].is_held_up);
}

TEST(Blame, RanksThatWaitForEachOtherAreNamedTogether) {
  Job job(3);
  job.world(0).begin(message(Collective::kReceive, 1));
  job.world(1).begin(message(Collective::kReceive, 2));
  job.enter(2, 0);
  const Verdict verdict = job.judge();
  EXPECT_EQ(verdict.kind, Verdict::Kind::kCycle);
  EXPECT_THAT(verdict.first, ElementsAre(0, 1, 2));
  EXPECT_EQ(job.sentences(verdict)[0], "ranks 0 to 2 wait for each other");
}

TEST(Blame, ABroadcastWaitsForItsRootAlone) {
  Job job(3);
  Operation broadcast = all_reduce(0);
  broadcast.record.collective = static_cast<std::uint8_t>(Collective::kBroadcast);
  broadcast.record.root = broadcast.peer = 2;
  job.world(0).begin(broadcast);
  EXPECT_THAT(job.judge().first, ElementsAre(2));
}

TEST(Blame, WhatTheJobHasFoundOutGoesBeforeWhatNumbersSay) {
  Job job(3);
  job.fail(0, 0, 1);
  job.enter(1, 0);  // rank 2 has not arrived either, but was not the cause
  job.is(1, Life::kGone);
  const Verdict verdict = job.judge();
  EXPECT_EQ(verdict.kind, Verdict::Kind::kStopped);
  EXPECT_EQ(verdict.first.front(), 1);
}

// Records of a job that makes progress are read one after the other.
TEST(Blame, NobodyIsMissingWhoWasOnlyReadEarlier) {
  std::vector<UniqueFd> files;
  std::vector<std::unique_ptr<Recorder>> recorders;
  std::vector<std::unique_ptr<CallRecorder>> worlds;
  for (int rank = 0; rank < 2; ++rank) {
    Result<UniqueFd> memory = make_sealed_memory();
    ASSERT_TRUE(memory);
    files.push_back(std::move(*memory));
    RecordPlace place;
    ASSERT_TRUE(parse_announcement(announce(files.back().get()), &place.handed_fd, &place.inode));
    auto opened = Recorder::open(place, {"job", rank, 2, "host"});
    ASSERT_TRUE(opened);
    recorders.push_back(std::move(*opened));
    worlds.push_back(std::make_unique<CallRecorder>(recorders.back().get(), kWorld));
    worlds.back()->open(2, rank);
  }
  std::vector<Witness> witnesses;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for (std::uint64_t call = 0; call < 10; ++call) {
      for (auto& world : worlds) world->end(world->begin(all_reduce(10 * rank + call)), Status());
    }
    const std::uint64_t running = worlds[rank]->begin(all_reduce(10 * rank + 10));
    Result<RankRecord> read = read_record(files[rank].get(), "record");
    ASSERT_TRUE(read);
    witnesses.push_back({std::move(*read), Life::kRuns});
    worlds[rank]->end(running, Status());
    worlds[1 - rank]->end(worlds[1 - rank]->begin(all_reduce(10 * rank + 10)), Status());
  }
  for (std::size_t rank = 0; rank < 2; ++rank) {
    update_record(files[rank].get(), &witnesses[rank].record);
  }
  EXPECT_EQ(blame(witnesses).kind, Verdict::Kind::kIdle);
}

// Rank 0 has started to receive, and computes; 3 waits for it as all do.
TEST(Blame, WhoHasOnlyStartedACallMayBeMissingInAnother) {
  Job job(4);
  Operation started = message(Collective::kReceive, 3);
  started.is_asynchronous = true;
  job.world(0).begin(started);
  for (const int rank : {1, 2, 3}) job.enter(rank, 0);
  const Verdict verdict = job.judge();
  EXPECT_EQ(verdict.kind, Verdict::Kind::kMissing);
  EXPECT_THAT(verdict.first, ElementsAre(0));
  EXPECT_THAT(job.sentences(verdict)[0], HasSubstr("it has started receive("));
  // A call that a thread waits in goes before.
  job.make(0, 0);
  job.enter(0, 1);
  job.make(1, 1);
  EXPECT_EQ(job.judge().standings[0].call->text(),
            "all_reduce(count 4, float32, sum) (operation 1)");
}

TEST(Blame, CallsThatEndByClosingOrForThemselvesAreNoFailures) {
  Job job(2);
  CallRecorder& world = job.world(0);
  world.end(world.begin(message(Collective::kReceive, 1)), Status(ErrorCode::kSystem, "", 1), true);
  const Verdict alone = job.judge();
  EXPECT_EQ(alone.kind, Verdict::Kind::kIdle);
  EXPECT_EQ(alone.standings[0].call->code, ErrorCode::kSystem);
  EXPECT_EQ(alone.standings[0].call->failed_rank, -1);
  world.end(world.begin(message(Collective::kReceive, 1)), Status(ErrorCode::kClosed, "", 0));
  EXPECT_EQ(job.judge().kind, Verdict::Kind::kIdle);
}

// The call that failed was not the one that was started last.
TEST(Blame, AFailureIsFoundBehindCallsThatBeganLater) {
  Job job(2);
  CallRecorder& world = job.world(0);
  const std::uint64_t first = world.begin(message(Collective::kReceive, 1));
  job.make(0, 0);
  world.end(first, Status(ErrorCode::kRankFailed, "", 1));
  const Verdict verdict = job.judge();
  EXPECT_EQ(verdict.kind, Verdict::Kind::kStopped);
  EXPECT_THAT(verdict.first, ElementsAre(1));
}

TEST(Blame, AHeldRankIsNotMissingInACallThatItHasMade) {
  Job job(2);
  job.make(1, 0);
  job.enter(0, 0);
  job.is(1, Life::kHeld);
  EXPECT_THAT(job.judge().standings[0].waits_for, IsEmpty());
}

// Rank 1 may have been in the communicator all the same.
TEST(Blame, ARecordThatHasNoRoomForACommunicatorTellsNothingOfIt) {
  RecordingRank one(0, 2), other(1, 2);
  CallRecorder world(&one.recorder, kWorld);
  world.open(2, 0);
  world.begin(all_reduce(0));
  std::vector<std::unique_ptr<CallRecorder>> others;
  for (std::uint32_t id = 1; id <= kCommunicators; ++id) {
    others.push_back(std::make_unique<CallRecorder>(&other.recorder, id));
    others.back()->open(2, 1);
  }
  std::vector<Witness> witnesses{{one.read(), Life::kRuns}, {other.read(), Life::kRuns}};
  const Verdict verdict = blame(witnesses);
  EXPECT_EQ(verdict.kind, Verdict::Kind::kBusy);
  EXPECT_EQ(verdict.standings[0].unknown, 1);
  // With room it would be there.
  witnesses[1].record.communicators.pop_back();
  EXPECT_THAT(blame(witnesses).first, ElementsAre(1));
}

TEST(Blame, ARankThatTheCommunicatorDoesNotHaveIsNotNamed) {
  Job job(2);
  job.world(0).begin(message(Collective::kReceive, 7));
  EXPECT_THAT(job.judge().standings[0].waits_for, IsEmpty());
  job.world(1).begin(message(Collective::kReceive, 1));
  const Verdict verdict = job.judge();
  EXPECT_EQ(verdict.kind, Verdict::Kind::kCycle);
  EXPECT_EQ(job.sentences(verdict)[0], "rank 1 waits for itself");
}

TEST(Blame, ARankThatLeftIsToldFromOneThatWasEnded) {
  Job job(2);
  for (const int rank : {0, 1}) job.make(rank, 0);
  job.enter(0, 1);
  job.recorder(1).close();
  job.is(1, Life::kGone);
  const Verdict verdict = job.judge();
  EXPECT_EQ(verdict.kind, Verdict::Kind::kStopped);
  EXPECT_THAT(job.sentences(verdict)[0], HasSubstr("it left its job after"));
}

TEST(Blame, OldFailuresOfAJobThatWentOnAreNoMore) {
  Job job(2);
  for (const int rank : {0, 1}) {
    job.fail(rank, 0, 1 - rank);
    CallRecorder next(&job.recorder(rank), 5);
    next.open(2, rank);
    next.end(next.begin(all_reduce(0)), Status());
  }
  EXPECT_EQ(job.judge().kind, Verdict::Kind::kIdle);
  for (const int rank : {0, 1}) job.recorder(rank).close();
  EXPECT_EQ(job.judge().kind, Verdict::Kind::kFinished);
}

// It was ahead of a rank that went on without it, and has left since or not.
TEST(Blame, AnEndedRankDoesNotWaitForThoseWhoWentOn) {
  Job job(3);
  for (const int rank : {0, 1, 2}) job.make(rank, 0);
  job.make(1, 1);
  job.enter(1, 2);
  job.is(1, Life::kGone);
  for (const int rank : {0, 2}) {
    job.fail(rank, 1, 1);
    CallRecorder left(&job.recorder(rank), 5);
    left.open(2, rank / 2);
    left.end(left.begin(all_reduce(0)), Status());
  }
  job.recorder(0).close();
  const Verdict verdict = job.judge();
  EXPECT_EQ(verdict.kind, Verdict::Kind::kStopped);
  EXPECT_THAT(verdict.first, ElementsAre(1));
  EXPECT_THAT(job.sentences(verdict), ElementsAre(HasSubstr("rank 1 stopped first: it was ended")));
}

TEST(Blame, RanksWithoutRecordsAreWaitedForAsUnknown) {
  Job job(4);
  for (const int rank : {0, 1}) job.enter(rank, 0);
  Verdict verdict = job.judge({0, 1});
  EXPECT_THAT(verdict.first, IsEmpty());
  EXPECT_EQ(verdict.standings[0].unknown, 2);
  EXPECT_THAT(
      job.sentences(verdict),
      ElementsAre("all ranks whose records are here have arrived in the calls that run",
                  HasSubstr("ranks 0 and 1 wait for 2 ranks of which no record here tells in")));

  CallRecorder turned(&job.recorder(2), 5);
  turned.open(4, 1);
  turned.begin(all_reduce(0));
  verdict = job.judge({2});
  EXPECT_EQ(verdict.standings[0].unknown, 3);
  EXPECT_THAT(verdict.first, IsEmpty());
}

// In a communicator that is numbered as the world, as far as records tell.
TEST(Blame, WhoIsNamedNeedsNoRecord) {
  Job job(4);
  job.fail(0, 0, 3);
  const Verdict verdict = job.judge({0});
  EXPECT_THAT(verdict.first, ElementsAre(3));
  EXPECT_THAT(job.sentences(verdict),
              ElementsAre("rank 3 stopped first: it has left no record here",
                          HasSubstr("rank 0 failed because of rank 3 in all_reduce")));
}

TEST(Blame, OfNothingIsNothing) {
  EXPECT_EQ(blame({}).kind, Verdict::Kind::kFinished);
  Job job(2);
  EXPECT_EQ(job.judge().kind, Verdict::Kind::kIdle);
}

TEST(Blame, NamesRanksAsPeopleDo) {
  EXPECT_EQ(blame::name_ranks({3}), "rank 3");
  EXPECT_EQ(blame::name_ranks({3, 1}), "ranks 1 and 3");
  EXPECT_EQ(blame::name_ranks({0, 1, 2, 5, 7, 8}), "ranks 0 to 2, 5, 7 and 8");
}

}  // namespace
}  // namespace unisono::recorder::test
