// Who takes the arbiter's place, by state machines with time as an argument, and what ranks say to
// a standby, whatever its bytes are.
#include <gmock/gmock.h>

#include "base/grace_periods.h"
#include "rendezvous/failure/failure_decider.h"
#include "rendezvous/failure/standby.h"
#include "rendezvous/sessions/job_record.h"
#include "rendezvous/sessions/standby_attempt.h"
#include "rendezvous/sessions/succession.h"

namespace unisono::rendezvous {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const TimePoint kBegin = TimePoint() + std::chrono::hours(1);

World world_of_standbys(Rank self, int size) {
  World world;
  world.rank = self;
  world.size = size;
  world.job_id = "the job";
  for (Rank rank = 0; rank < size; ++rank) {
    Member member;
    member.rank = rank;
    member.host_name = "host";
    if (rank >= 1 && rank <= kStandbys)
      member.addresses = "standby-unix name" + std::to_string(rank);
    world.members.push_back(member);
  }
  return world;
}

FailureDecision death_of(Rank rank) {
  return {ErrorCode::kRankFailed, rank, kEveryCommunicator, 0, "rank " + std::to_string(rank)};
}

// ---- Succession ---------------------------------------------------------------------------------

TEST(Succession, TakesOverWhenItsOwnRankHasCome) {
  Succession succession(1, 4);
  succession.on_come(3, kBegin);
  EXPECT_FALSE(succession.has_taken_over());
  succession.on_come(1, kBegin + milliseconds(5));
  EXPECT_TRUE(succession.has_taken_over());
  EXPECT_FALSE(succession.refuses(kBegin + std::chrono::hours(1)));
}

TEST(Succession, RefusesWhileItsOwnRankDoesNotCome) {
  Succession succession(1, 4);
  EXPECT_EQ(succession.next_due(), kNever);
  succession.on_come(3, kBegin);
  EXPECT_FALSE(succession.refuses(kBegin));
  EXPECT_TRUE(succession.refuses(succession.next_due()));
  succession.on_refused();
  EXPECT_FALSE(succession.refuses(kBegin + std::chrono::hours(1)));
  EXPECT_EQ(succession.next_due(), kNever);
}

TEST(Succession, NamesOnceWhoDidNotComeInTime) {
  Succession succession(1, 6);
  succession.on_come(1, kBegin);
  succession.on_gone(0);
  succession.on_come(3, kBegin);
  const TimePoint due = succession.next_due();
  EXPECT_EQ(due, kBegin + grace::kSuccession);
  EXPECT_THAT(succession.take_missing(due - milliseconds(1)), IsEmpty());
  succession.on_come(5, due - milliseconds(1));
  EXPECT_THAT(succession.take_missing(due), ElementsAre(2, 4));
  EXPECT_THAT(succession.take_missing(due + milliseconds(1)), IsEmpty());
  EXPECT_EQ(succession.next_due(), kNever);
}

// By a long silence they lose the arbiter at times that are further apart.
TEST(Succession, WaitsForThoseThatMissTheArbiterLater) {
  constexpr std::chrono::seconds kLongSilence{30};
  Succession succession(1, 3, kLongSilence);
  succession.on_come(1, kBegin);
  EXPECT_THAT(succession.take_missing(kBegin + kLongSilence / 3), IsEmpty());
  EXPECT_THAT(succession.take_missing(succession.next_due()), ElementsAre(0, 2));
}

TEST(JobRecord, OfARankThatWasStoppedTriesTheOthersFirst) {
  const World world = world_of_standbys(1, 5);
  JobRecord record(world.members, world.rank, world.job_id);
  EXPECT_EQ(record.next_standby(), 1);
  EXPECT_EQ(record.next_standby(true), 2);
  record.on_dead(2);
  record.on_departed(3);
  EXPECT_EQ(record.next_standby(true), 1);
}

TEST(Succession, WaitsForARankThatGaveUpBeforeItWasAnswered) {
  Succession succession(1, 3);
  succession.on_come(2, kBegin);
  succession.on_withdrawn(2);
  succession.on_come(1, kBegin);
  succession.on_gone(0);
  EXPECT_THAT(succession.take_missing(succession.next_due()), ElementsAre(2));
}

// ---- Standbys -----------------------------------------------------------------------------------

/// Of as many ranks on each host.
World world_of_hosts(int hosts, int ranks_per_host) {
  World world = world_of_standbys(0, hosts * ranks_per_host);
  for (Member& member : world.members) {
    member.host = "host" + std::to_string(member.rank / ranks_per_host);
    member.addresses.clear();
    const int local_rank = member.rank % ranks_per_host;
    if (may_be_standby(member.rank, local_rank, ranks_per_host))
      member.addresses = "standby-unix name";
  }
  return world;
}

TEST(Standbys, AreOnSeveralHosts) {
  EXPECT_THAT(choose_standbys(world_of_hosts(1, 8).members), ElementsAre(1, 2, 3));
  EXPECT_THAT(choose_standbys(world_of_hosts(2, 8).members), ElementsAre(1, 2, 8));
  EXPECT_THAT(choose_standbys(world_of_hosts(3, 8).members), ElementsAre(1, 8, 16));
  EXPECT_THAT(choose_standbys(world_of_hosts(100, 8).members), ElementsAre(1, 8, 16));
  EXPECT_THAT(choose_standbys(world_of_hosts(100, 1).members), ElementsAre(1, 2, 3));
  EXPECT_THAT(choose_standbys(world_of_hosts(1, 1).members), ElementsAre());
}

TEST(Standbys, AreOfThoseThatListen) {
  World world = world_of_hosts(3, 8);
  world.members[1].addresses.clear();
  world.members[8].addresses = "tcp:1:10.0.0.1";
  EXPECT_THAT(choose_standbys(world.members), ElementsAre(2, 3, 16));
}

TEST(Standbys, NobodyListensWhoCannotBecomeOne) {
  EXPECT_FALSE(may_be_standby(0, 0, 8));
  EXPECT_TRUE(may_be_standby(3, -1, 0));
  EXPECT_FALSE(may_be_standby(4, -1, 0));
  EXPECT_TRUE(may_be_standby(4, 0, 0));
  EXPECT_TRUE(may_be_standby(24, 0, 8));
  EXPECT_FALSE(may_be_standby(25, 1, 8));
  EXPECT_FALSE(may_be_standby(32, 0, 8));
  EXPECT_TRUE(may_be_standby(5, 0, 3));  // five ranks on the first host
}

TEST(JobRecord, NextStandbyIsOnAnotherHostWhenOneHasDied) {
  const World world = world_of_hosts(3, 8);
  JobRecord record(world.members, 17, world.job_id);
  EXPECT_EQ(record.next_standby(), 1);
  for (Rank rank = 0; rank < 8; ++rank) record.on_dead(rank);
  EXPECT_EQ(record.next_standby(), 8);
}

// ---- JobRecord ----------------------------------------------------------------------------------

TEST(JobRecord, NextStandbyIsTheLowestThatIsNotGone) {
  const World world = world_of_standbys(5, 6);
  JobRecord record(world.members, world.rank, world.job_id);
  record.on_dead(0);
  EXPECT_EQ(record.next_standby(), 1);
  record.on_departed(1);
  EXPECT_EQ(record.next_standby(), 2);
  record.on_decision(death_of(2));
  EXPECT_EQ(record.next_standby(), 3);
  record.on_decision({ErrorCode::kRankLeft, 3, kEveryCommunicator, 0, "left"});
  EXPECT_EQ(record.next_standby(), -1);
}

TEST(JobRecord, ThereIsNoNextStandbyForARankThatIsAlone) {
  const World world = world_of_standbys(1, 3);
  JobRecord record(world.members, world.rank, world.job_id);
  record.on_dead(0);
  EXPECT_EQ(record.next_standby(), 1);
  record.on_dead(2);
  EXPECT_EQ(record.next_standby(), -1);
}

TEST(JobRecord, AFailureOfOneCommunicatorIsNoDeath) {
  const World world = world_of_standbys(2, 3);
  JobRecord record(world.members, world.rank, world.job_id);
  record.on_decision({ErrorCode::kTimeout, 1, 7, 3, "late"});
  EXPECT_EQ(record.next_standby(), 1);
  EXPECT_THAT(record.rejoin_message().dead, IsEmpty());
}

TEST(JobRecord, TellsTheSuccessorWhoIsGoneAndWhy) {
  const World world = world_of_standbys(4, 6);
  JobRecord record(world.members, world.rank, world.job_id);
  record.on_decision(death_of(3));
  record.on_dead(0);
  record.on_departed(5);
  const RejoinMessage message = record.rejoin_message();
  EXPECT_EQ(message.rank, 4);
  EXPECT_EQ(message.job_id, "the job");
  EXPECT_THAT(message.dead, ElementsAre(0, 3));
  EXPECT_THAT(message.left, ElementsAre(5));
  EXPECT_THAT(message.ended, ElementsAre(5));
  ASSERT_EQ(message.decisions.size(), 1u);
  EXPECT_EQ(message.decisions[0].message, "rank 3");
}

// It may have gone on with the other part of a partition, and left that.
TEST(JobRecord, AGoodbyeToAStrangerIsNoProofOfAnEnd) {
  const World world = world_of_standbys(3, 4);
  JobRecord record(world.members, world.rank, world.job_id);
  record.on_dead(0);
  record.on_departed_elsewhere(1);
  EXPECT_EQ(record.next_standby(), 2);
  EXPECT_THAT(record.rejoin_message().left, ElementsAre(1));
  EXPECT_THAT(record.rejoin_message().ended, IsEmpty());
  record.on_departed(2);
  EXPECT_THAT(record.rejoin_message().left, ElementsAre(1, 2));
  EXPECT_THAT(record.rejoin_message().ended, ElementsAre(2));
}

// ---- What the successor's decider makes of it ---------------------------------------------------

TEST(DeciderOfASuccessor, TellsEveryoneWhatOneRankKnows) {
  FailureDecider decider(world_of_standbys(1, 6).members);
  decider.learn({"the job", 4, {0, 3}, {5}, {death_of(3)}});
  std::vector<Rank> told;
  std::string text_of_three;
  for (const FailureDecider::Outgoing& each : decider.take(kBegin)) {
    EXPECT_EQ(each.target, -1);
    told.push_back(each.decision.failed_rank);
    if (each.decision.failed_rank == 3) text_of_three = each.decision.message;
  }
  EXPECT_THAT(told, ElementsAre(3, 0));
  EXPECT_EQ(text_of_three, "rank 3") << "the words that others have heard already";
  // The same from another one is no news, nor is the end of a rank that has left.
  decider.learn({"the job", 2, {0, 3}, {5}, {death_of(3)}});
  decider.on_closed(5, "closed without goodbye");
  EXPECT_THAT(decider.take(kBegin), IsEmpty());
}

// Whether the other end is alive shows when it comes, or does not.
TEST(DeciderOfASuccessor, JudgesNoLinkToARankThatIsOnItsWay) {
  FailureDecider decider(world_of_standbys(2, 5).members);
  decider.await(1);
  decider.on_broken_link(2, {1, "connection reset"}, kBegin);
  decider.on_broken_link(3, {1, "connection reset"}, kBegin);
  EXPECT_EQ(decider.next_due(), kNever);
  const TimePoint later = kBegin + 2 * kLinkGraceTime;
  EXPECT_THAT(decider.take(later), IsEmpty());
  decider.condemn(1, "did not come");
  const auto told = decider.take(later);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].decision.failed_rank, 1);
  EXPECT_THAT(told[0].decision.message, HasSubstr("did not come"));
}

// ---- The wire -----------------------------------------------------------------------------------

std::string_view body_of_rejoin(const std::string& message) {
  return std::string_view(message).substr(5);
}

RejoinMessage a_rejoin() { return {"the job", 4, {0, 3}, {5}, {death_of(3), death_of(0)}, {}, 7}; }

TEST(RejoinMessage, RoundTrips) {
  const std::string bytes = encode_rejoin(a_rejoin(), 6);
  const auto got = decode_rejoin(body_of_rejoin(bytes), 6);
  ASSERT_TRUE(got.has_value()) << got.error().message();
  EXPECT_EQ(got->job_id, "the job");
  EXPECT_EQ(got->rank, 4);
  EXPECT_EQ(got->attempt, 7u);
  EXPECT_THAT(got->dead, ElementsAre(0, 3));
  EXPECT_THAT(got->left, ElementsAre(5));
  ASSERT_EQ(got->decisions.size(), 2u);
  EXPECT_EQ(got->decisions[1].message, "rank 0");
}

TEST(RejoinMessage, OfTheLargestWorldWithTheLongestWordsFits) {
  RejoinMessage message = a_rejoin();
  for (Rank rank = 0; rank < kWorldSizeMax; ++rank) message.dead.push_back(rank);
  message.left = message.dead;
  FailureDecision wordy = death_of(1);
  wordy.message.assign(kTextBytesMax, 'x');
  message.decisions.assign(2 * kDecisionsToldMax, wordy);
  const std::string bytes = encode_rejoin(message, kWorldSizeMax);
  const auto got = decode_rejoin(body_of_rejoin(bytes), kWorldSizeMax);
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->decisions.size(), kDecisionsToldMax);
}

TEST(RejoinMessage, IsRefusedWhenItIsCutOrOfAnotherWorld) {
  const std::string bytes = encode_rejoin(a_rejoin(), 6);
  const std::string_view body = body_of_rejoin(bytes);
  for (std::size_t kept = 0; kept < body.size(); ++kept) {
    EXPECT_FALSE(decode_rejoin(body.substr(0, kept), 6).has_value()) << kept;
  }
  EXPECT_FALSE(decode_rejoin(std::string(body) + "x", 6).has_value());
  EXPECT_FALSE(decode_rejoin(body, 4).has_value()) << "rank 4 of 4";
}

TEST(StandbyAddress, IsReadFromWhatAMemberTells) {
  Member member;
  member.addresses =
      "tcp 1.2.3.4 5\nstandby-unix name\nstandby-tcp 4711 10.0.0.1 fd00::1 evil.example\n";
  const StandbyAddress address = standby_address(member);
  EXPECT_EQ(address.unix_name, "name");
  EXPECT_EQ(address.port, 4711);
  EXPECT_THAT(address.hosts, ElementsAre("10.0.0.1", "fd00::1"));
}

TEST(StandbyAddress, ThatMakesNoSenseIsNone) {
  for (const char* line : {"", "standby-tcp 4711", "standby-tcp 99999 10.0.0.1",
                           "standby-tcp x 10.0.0.1", "standby-tcp 4711 evil.example"}) {
    Member member;
    member.addresses = line;
    EXPECT_TRUE(standby_address(member).is_empty()) << line;
  }
  Member member;
  member.addresses = "standby-unix " + std::string(1000, 'x');
  EXPECT_TRUE(standby_address(member).is_empty());
}

// ---- Coming to a standby ------------------------------------------------------------------------

/// Answers as the test says.
class TestLine final : public StandbyLine {
 public:
  DialOutcome open(std::size_t place) override {
    tried.push_back(place);
    return place < silent_places ? silence : DialOutcome::kPending;
  }
  DialOutcome converse() override { return answer; }
  void close() override { ++closed; }

  std::size_t silent_places = 0;
  DialOutcome silence = DialOutcome::kAbsent;  // of these
  DialOutcome answer = DialOutcome::kPending;
  std::vector<std::size_t> tried;
  int closed = 0;
};

TEST(StandbyAttempt, TriesOnePlaceAfterTheOther) {
  TestLine line;
  line.silent_places = 1;
  StandbyAttempt attempt(1, 0, 3, kBegin);
  EXPECT_EQ(attempt.next_due(), TimePoint::min());
  EXPECT_EQ(attempt.advance(line, kBegin), DialOutcome::kPending);
  EXPECT_EQ(attempt.next_due(), kBegin + grace::kStandbyAnswer);
  line.answer = DialOutcome::kAbsent;  // nobody has taken the connection
  EXPECT_EQ(attempt.advance(line, kBegin), DialOutcome::kAbsent);
  EXPECT_THAT(line.tried, ElementsAre(0, 1, 2));
  EXPECT_EQ(line.closed, 2);
}

TEST(StandbyAttempt, ComesAgainWhereItWasTurnedAway) {
  TestLine line;
  StandbyAttempt attempt(1, 0, 2, kBegin);
  line.answer = DialOutcome::kFailed;
  EXPECT_EQ(attempt.advance(line, kBegin), DialOutcome::kPending);
  EXPECT_EQ(line.closed, 1);
  line.answer = DialOutcome::kSeated;
  const TimePoint again = attempt.next_due();
  EXPECT_EQ(again, kBegin + StandbyAttempt::kTurnedAwayPause);
  EXPECT_EQ(attempt.advance(line, again - milliseconds(1)), DialOutcome::kPending);
  EXPECT_EQ(attempt.advance(line, again), DialOutcome::kSeated);
  EXPECT_THAT(line.tried, ElementsAre(0, 0));
}

// One of its addresses may lead nowhere, and another to somebody else.
TEST(StandbyAttempt, ComesAgainWhereOnePlaceCannotBeReachedNow) {
  for (const Rank self : {0, 1}) {
    TestLine line;
    StandbyAttempt attempt(1, self, 2, kBegin);
    line.silent_places = 1;
    line.silence = DialOutcome::kUnreachable;
    line.answer = DialOutcome::kAbsent;
    EXPECT_EQ(attempt.advance(line, kBegin), DialOutcome::kPending);
    const TimePoint again = attempt.next_due();
    EXPECT_EQ(again, kBegin + StandbyAttempt::kTurnedAwayPause);
    EXPECT_EQ(attempt.advance(line, again), DialOutcome::kPending);
    EXPECT_THAT(line.tried, ElementsAre(0, 1, 0, 1));
    EXPECT_EQ(attempt.advance(line, kBegin + grace::kStandbyAnswer), DialOutcome::kFailed);
  }
}

TEST(StandbyAttempt, EndsWhereNobodyListensAnyMore) {
  TestLine line;
  StandbyAttempt attempt(1, 0, 2, kBegin);
  line.silent_places = 2;
  line.silence = DialOutcome::kUnreachable;
  EXPECT_EQ(attempt.advance(line, kBegin), DialOutcome::kPending);
  line.silence = DialOutcome::kAbsent;
  EXPECT_EQ(attempt.advance(line, attempt.next_due()), DialOutcome::kAbsent);
}

TEST(StandbyAttempt, EndsWhereNobodyAnswersButInItsOwnProcess) {
  TestLine line;
  StandbyAttempt attempt(1, 0, 1, kBegin), own(1, 1, 1, kBegin);
  EXPECT_EQ(attempt.advance(line, kBegin + grace::kStandbyAnswer), DialOutcome::kFailed);
  EXPECT_EQ(own.advance(line, kBegin + std::chrono::hours(1)), DialOutcome::kPending);
}

}  // namespace
}  // namespace unisono::rendezvous
