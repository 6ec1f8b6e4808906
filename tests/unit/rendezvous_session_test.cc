// What a rank makes of what the arbiter says or does not say, by the state machine alone.
#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/grace_periods.h"
#include "rendezvous/messages/control_messages.h"
#include "rendezvous/sessions/control_session.h"
#include "rendezvous_apart.h"

namespace unisono::rendezvous {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

struct RankLines final : ControlLinks {
  void send(std::string bytes) override {
    said.push_back(type_of(bytes));
    last = std::move(bytes);
  }
  void close() override {}
  void dial(Rank standby, const RejoinMessage& told, TimePoint) override {
    dialled.push_back(standby);
    greeting = told;
  }
  void give_up() override {}
  ProcessSight sight_of(Rank) const override { return sight; }
  void probe(Rank rank, TimePoint) override { probed.push_back(rank); }
  void move() override {}
  static MessageType type_of(const std::string& bytes) {
    return static_cast<MessageType>(bytes[4]);
  }

  std::vector<MessageType> said;
  std::string last;
  std::vector<Rank> dialled, probed;
  RejoinMessage greeting;  // the latest
  ProcessSight sight = ProcessSight::kStopped;
};

// As its connection does that wakes in time, and hears the arbiter or does not.
void run_for(ControlSession* session, Duration time, TimePoint* now, bool hears = false) {
  for (const TimePoint until = *now + time; *now < until; *now += milliseconds(100)) {
    session->on_wake(*now);
    if (hears) session->on_heard(*now);
    session->look_for_silence(*now);
    session->beat(*now);
  }
}

// As its connection does, where all standbys that it comes to say the same a second later.
void seek_for(ControlSession* session, Duration time, TimePoint* now, DialOutcome said) {
  for (const TimePoint until = *now + time; *now < until && !session->is_lost();) {
    if (session->is_seeking()) {
      run_for(session, grace::kOwnRank, now);
      session->on_dialled(said, *now);
    }
    run_for(session, milliseconds(100), now);
  }
}

// The next one would say of a call that has ended well who holds it up.
TEST(ControlSession, TellsTheNextArbiterOfADeadlineThatWasNotWithdrawn) {
  for (const bool is_withdrawn : {false, true}) {
    const std::vector<Member> members = members_apart(6);
    RankLines lines;
    ControlSession session(members, 5, "job", kSilence, lines, kMetAt);
    session.report_timeout({3, 4, {1}, {1, 5}}, kMetAt);
    session.report_timeout({3, 9, {1}, {1, 5}}, kMetAt);
    if (is_withdrawn) session.withdraw_timeout({3, 4, {}, {}});
    session.on_closed(kMetAt);
    ASSERT_THAT(lines.dialled, ElementsAre(1));
    lines.said.clear();
    session.on_dialled(DialOutcome::kSeated, kMetAt);
    EXPECT_EQ(std::count(lines.said.begin(), lines.said.end(), MessageType::kTimedOut),
              is_withdrawn ? 1 : 2);
  }
}

// Three refusals in a row say that the link to the arbiter is broken.
TEST(ControlSession, IsCutOffByStandbysThatHearTheArbiter) {
  const std::vector<Member> members = members_apart(6);
  RankLines lines;
  ControlSession session(members, 5, "job", kSilence, lines, kMetAt);
  TimePoint now = kMetAt;
  seek_for(&session, 5 * kSilence, &now, DialOutcome::kRefused);
  EXPECT_THAT(lines.dialled, ElementsAre(1, 1, 1));
  ASSERT_TRUE(session.is_lost());
  EXPECT_EQ(session.take_news().decisions.front().code, ErrorCode::kPartitioned);
}

// Then its end was that of the connection alone, and others may go on with it.
TEST(ControlSession, TakesNoArbiterForEndedThatAStandbyHears) {
  const std::vector<Member> members = members_apart(6);
  RankLines lines;
  ControlSession session(members, 5, "job", kSilence, lines, kMetAt);
  session.on_closed(kMetAt);
  EXPECT_THAT(lines.greeting.ended, ElementsAre(0));
  session.on_dialled(DialOutcome::kRefused, kMetAt);
  EXPECT_THAT(lines.dialled, ElementsAre(1, 2));
  EXPECT_THAT(lines.greeting.ended, IsEmpty());
  EXPECT_THAT(lines.greeting.dead, ElementsAre(0));
}

// One that was stopped finds out within a silence; the others have had as long by then.
TEST(ControlSession, AsksTheNextStandbyWhereOneDoesNotFindOutWhetherItHearsTheArbiter) {
  const std::vector<Member> members = members_apart(6);
  RankLines lines;
  ControlSession session(members, 5, "job", kSilence, lines, kMetAt);
  TimePoint now = kMetAt;
  seek_for(&session, 2 * kSilence, &now, DialOutcome::kUnknown);
  EXPECT_THAT(lines.dialled, AllOf(Not(IsEmpty()), Each(1)));
  EXPECT_FALSE(session.is_lost());
  lines.dialled.clear();
  seek_for(&session, std::chrono::seconds(2), &now, DialOutcome::kUnknown);
  EXPECT_THAT(lines.dialled, AllOf(Contains(2), Contains(3)));
  seek_for(&session, std::chrono::seconds(10), &now, DialOutcome::kUnknown);
  ASSERT_TRUE(session.is_lost()) << "all have been asked";
  EXPECT_EQ(session.partition().code(), ErrorCode::kPartitioned);
  EXPECT_EQ(session.take_news().decisions.front().failed_rank, 0);
}

// From another host the arbiter's connection may have been reset: then they had gone on with it.
TEST(ControlSession, DoesNotGoOnAloneWhereTheStandbyThatLeavesMayHaveGoneOn) {
  for (const bool is_one_host : {false, true}) {
    const std::vector<Member> members = is_one_host ? members_on_one_host(3) : members_apart(3);
    RankLines lines;
    ControlSession session(members, 2, "job", kSilence, lines, kMetAt);
    session.on_closed(kMetAt);
    ASSERT_THAT(lines.dialled, ElementsAre(1));
    session.on_dialled(DialOutcome::kLeft, kMetAt);
    ASSERT_TRUE(session.is_lost());
    EXPECT_EQ(session.is_last(), is_one_host);
    EXPECT_EQ(session.partition().ok(), is_one_host);
  }
}

// In a container of its own it may live, and lack a thread or descriptor for its arbiter.
TEST(ControlSession, GoesOnAloneWhereNobodyListensOnceTheirProcessesCanBeSeenToHaveEnded) {
  for (const std::uint64_t theirs : {0, 7, 8}) {
    std::vector<Member> members = members_on_one_host(3);
    for (Member& member : members) member.pid_namespace = theirs;
    members[2].pid_namespace = theirs == 8 ? 7 : theirs;
    RankLines lines;
    ControlSession session(members, 2, "job", kSilence, lines, kMetAt);
    session.on_closed(kMetAt);
    ASSERT_THAT(lines.dialled, ElementsAre(1));
    session.on_dialled(DialOutcome::kAbsent, kMetAt);
    ASSERT_TRUE(session.is_lost());
    EXPECT_EQ(session.is_last(), theirs == 7) << theirs;
  }
}

// Its rank has left, and it has served the others until then: a reset is no farewell.
TEST(ControlSession, DoesNotTakeTheArbiterOfARankThatHasLeftForEndedWithItsConnection) {
  for (const bool says_farewell : {false, true}) {
    const std::vector<Member> members = members_apart(3);
    RankLines lines;
    ControlSession session(members, 2, "job", kSilence, lines, kMetAt);
    const std::string departed = encode_rank(MessageType::kDeparted, 0);
    session.on_message({MessageType::kDeparted, std::string_view(departed).substr(5)}, kMetAt);
    if (says_farewell) session.on_message({MessageType::kFarewell, {}}, kMetAt);
    if (!says_farewell) session.on_closed(kMetAt);
    ASSERT_THAT(lines.dialled, ElementsAre(1));
    session.on_dialled(DialOutcome::kLeft, kMetAt);
    ASSERT_TRUE(session.is_lost());
    EXPECT_EQ(session.is_last(), says_farewell);
    EXPECT_EQ(session.partition().ok(), says_farewell);
  }
}

// That it had left only those hear that still need it, and all that its arbiter is silent.
TEST(ControlSession, HearsOfAFailureAfterTheWordThatTheRankHasLeft) {
  const std::vector<Member> members = members_apart(3);
  RankLines lines;
  ControlSession session(members, 2, "job", kSilence, lines, kMetAt);
  const std::string left = encode(
      MessageType::kDecision,
      {ErrorCode::kRankLeft, 0, kEveryCommunicator, 0, "rank 0 left while rank 2 needed it"});
  for (int times = 0; times < 2; ++times) {
    session.on_message({MessageType::kDecision, std::string_view(left).substr(5)}, kMetAt);
  }
  EXPECT_THAT(session.take_news().decisions, SizeIs(1));
  session.on_closed(kMetAt);
  session.on_dialled(DialOutcome::kSeated, kMetAt);
  session.on_message({MessageType::kDecision, std::string_view(left).substr(5)}, kMetAt);
  const std::vector<FailureDecision> heard = session.take_news().decisions;
  ASSERT_THAT(heard, SizeIs(1));
  EXPECT_EQ(heard[0].code, ErrorCode::kRankFailed);
  EXPECT_EQ(heard[0].failed_rank, 0);
}

// Its connection broke at once, and the standby hears nothing more either, of which it is sure a
// silence later.
TEST(ControlSession, LooksForAStandbyForLongerThanThatOneTakesToMissTheArbiter) {
  for (const milliseconds silence : {milliseconds(200), milliseconds(3000), milliseconds(30'000)}) {
    for (const DialOutcome said : {DialOutcome::kRefused, DialOutcome::kUnknown}) {
      const std::vector<Member> members = members_apart(6);
      RankLines lines;
      ControlSession session(members, 5, "job", silence, lines, kMetAt);
      session.on_closed(kMetAt);
      TimePoint now = kMetAt;
      seek_for(&session, silence + grace::kOwnRank, &now, said);
      EXPECT_TRUE(session.is_seeking()) << silence.count() << " ms";
      seek_for(&session, silence + std::chrono::seconds(10), &now, said);
      EXPECT_TRUE(session.is_lost()) << silence.count() << " ms";
      EXPECT_EQ(session.partition().code(), ErrorCode::kPartitioned);
    }
  }
}

// They may have gone on without it before they left.
TEST(ControlSession, DoesNotGoOnAloneOnceTheOthersHaveNamedIt) {
  for (const Rank named : {0, 2}) {
    const std::vector<Member> members = members_apart(3);
    RankLines lines;
    ControlSession session(members, 2, "job", kSilence, lines, kMetAt);
    const std::string bytes =
        encode(MessageType::kDecision,
               {ErrorCode::kRankFailed, named, kEveryCommunicator, 0, "its link broke"});
    session.on_message({MessageType::kDecision, std::string_view(bytes).substr(5)}, kMetAt);
    const std::string departed = encode_rank(MessageType::kDeparted, 1);
    session.on_message({MessageType::kDeparted, std::string_view(departed).substr(5)}, kMetAt);
    session.on_message({MessageType::kFarewell, {}}, kMetAt);
    ASSERT_TRUE(session.is_lost());
    EXPECT_EQ(session.is_last(), named == 0);
  }
}

// By its control connection, whether the rank is in a call or not; and to whoever asks later.
TEST(ControlSession, KnowsThatOthersGoOnWithoutIt) {
  const std::vector<Member> members = members_apart(6);
  RankLines lines;
  ControlSession session(members, 3, "job", kSilence, lines, kMetAt);
  const std::string bytes = encode_shrink(
      {ShrinkStep::kLeftOut, 7, 70, {}, {}, {ErrorCode::kTimeout, "it was late", 3}}, 6);
  session.on_message({MessageType::kShrink, std::string_view(bytes).substr(5)}, kMetAt);
  EXPECT_FALSE(session.has_news());
  ASSERT_THAT(lines.said, ElementsAre(MessageType::kShrink));
  const auto answer = decode_shrink(std::string_view(lines.last).substr(5), 6);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->step, ShrinkStep::kKnows);
  EXPECT_EQ(answer->communicator, 7u);
  EXPECT_EQ(answer->id, 70u);
  session.say_shrink({ShrinkStep::kAsk, 7, 0, {}, {1, 3}, {}});
  EXPECT_THAT(lines.said, SizeIs(1)) << "no arbiter is asked";
  const auto words = session.take_news().shrink_words;
  ASSERT_THAT(words, SizeIs(1));
  EXPECT_EQ(words[0].step, ShrinkStep::kRefused);
  EXPECT_EQ(words[0].why.message(), "it was late");
}

// Nor does it follow the arbiter of those that come to it as to a standby.
TEST(ControlSession, ThatIsAloneHearsNoArbiter) {
  const std::vector<Member> members = members_apart(6);
  RankLines lines;
  ControlSession session(members, 3, "job", kSilence, lines, kMetAt);
  TimePoint now = kMetAt;
  seek_for(&session, 5 * kSilence, &now, DialOutcome::kRefused);
  ASSERT_TRUE(session.is_lost());
  EXPECT_EQ(session.arbiter_heard_at(), TimePoint::min());
}

TEST(ControlSession, KnowsNothingOfTheArbiterByWhatWasSaidBeforeAStop) {
  const std::vector<Member> members = members_apart(6);
  RankLines lines;
  ControlSession session(members, 1, "job", kSilence, lines, kMetAt);
  TimePoint now = kMetAt;
  run_for(&session, kSilence, &now, true);
  const TimePoint heard = session.arbiter_heard_at();
  EXPECT_EQ(heard, now - milliseconds(100));
  now += kSilence;
  run_for(&session, milliseconds(100), &now, true);
  EXPECT_EQ(session.arbiter_heard_at(), heard);
  run_for(&session, kSilence / 3, &now, true);
  EXPECT_EQ(session.arbiter_heard_at(), now - milliseconds(100));
}

TEST(ControlSession, SaysWhetherItMissesTheArbiter) {
  const std::vector<Member> members = members_apart(6);
  RankLines lines;
  ControlSession session(members, 5, "job", kSilence, lines, kMetAt);
  TimePoint now = kMetAt;
  run_for(&session, kSilence / 3, &now);
  EXPECT_THAT(lines.said, testing::Each(MessageType::kBeat));
  run_for(&session, 2 * kSilence, &now);
  EXPECT_TRUE(session.is_seeking());
  EXPECT_EQ(lines.said.back(), MessageType::kMisses);
  lines.said.clear();
  session.on_heard(now);
  EXPECT_THAT(lines.said, ElementsAre(MessageType::kBeat)) << "at once";
  session.on_heard(now);
  EXPECT_THAT(lines.said, ElementsAre(MessageType::kBeat)) << "once";
}

TEST(ControlSession, LooksForAStandbyWhereAnotherPartHasEnded) {
  const std::vector<Member> members = members_apart(6);
  RankLines lines;
  ControlSession session(members, 4, "job", kSilence, lines, kMetAt);
  session.on_message({MessageType::kPartEnded, {}}, kMetAt);
  EXPECT_THAT(lines.said, ElementsAre(MessageType::kDeposed));
  EXPECT_THAT(lines.dialled, ElementsAre(1));
  EXPECT_TRUE(session.is_seeking());
}

// However long it has not heard the arbiter: that knows whom it hears.
TEST(ControlSession, TakesTheEndOfItsOwnPart) {
  const std::vector<Member> members = members_apart(6);
  RankLines lines;
  ControlSession session(members, 4, "job", kSilence, lines, kMetAt);
  TimePoint now = kMetAt;
  for (; now < kMetAt + kSilence * 5 / 6; now += milliseconds(100)) session.on_wake(now);
  session.on_heard(now);
  const std::string bytes = encode(MessageType::kDecision,
                                   {ErrorCode::kPartitioned, 0, kEveryCommunicator, 0, "cut off"});
  session.on_message({MessageType::kDecision, std::string_view(bytes).substr(5)}, now);
  EXPECT_TRUE(session.is_open());
  ASSERT_TRUE(session.has_news());
  EXPECT_EQ(session.take_news().decisions.front().code, ErrorCode::kPartitioned);
}

TEST(ControlSession, IsWithItsOwnArbiterFromWhenItGoesThere) {
  const std::vector<Member> members = members_apart(5);
  for (const Rank self : {1, 4}) {
    RankLines lines;
    ControlSession session(members, self, "job", kSilence, lines, kMetAt);
    EXPECT_FALSE(session.is_with_own_arbiter());
    session.on_closed(kMetAt);
    EXPECT_EQ(session.is_with_own_arbiter(), self == 1);
    session.on_dialled(DialOutcome::kSeated, kMetAt);
    EXPECT_EQ(session.is_with_own_arbiter(), self == 1);
  }
}

TEST(ControlSession, GivesEachStandbyItsShareOfTheTimeForAGoodbye) {
  const std::vector<Member> members = members_apart(6);
  RankLines lines;
  ControlSession session(members, 5, "job", kSilence, lines, kMetAt);
  session.leave();
  session.say_goodbye_to_standbys(kMetAt);
  EXPECT_THAT(lines.dialled, ElementsAre(1));
  EXPECT_LE(session.next_due(), kMetAt + kGoodbyeTime / 2);
  session.look_for_silence(kMetAt + kGoodbyeTime / 2);
  EXPECT_THAT(lines.dialled, ElementsAre(1, 2));
  session.on_dialled(DialOutcome::kNoted, kMetAt + kGoodbyeTime / 2);
  EXPECT_THAT(lines.dialled, ElementsAre(1, 2, 3));
  EXPECT_FALSE(session.has_left());
  session.look_for_silence(kMetAt + kGoodbyeTime);
  EXPECT_TRUE(session.has_left());
}

// It is silent then, which makes nobody wake at once again and again.
TEST(ControlSession, MissesTheArbiterOnceWhileItSaysGoodbye) {
  const std::vector<Member> members = members_apart(6);
  RankLines lines;
  ControlSession session(members, 5, "job", milliseconds(200), lines, kMetAt);
  session.leave();
  session.say_goodbye_to_standbys(kMetAt + milliseconds(100));
  const TimePoint now = kMetAt + milliseconds(201);
  session.on_wake(now);
  session.look_for_silence(now);
  session.beat(now);
  EXPECT_GT(session.next_due(), now);
}

TEST(ControlSession, SaysGoodbyeLastToAStandbyThatHasNotAnswered) {
  const std::vector<Member> members = members_apart(6);
  RankLines lines;
  ControlSession session(members, 5, "job", kSilence, lines, kMetAt);
  session.on_closed(kMetAt);
  session.on_dialled(DialOutcome::kFailed, kMetAt);
  lines.dialled.clear();
  session.leave();
  session.say_goodbye_to_standbys(kMetAt);
  for (int i = 0; i < 3; ++i) session.on_dialled(DialOutcome::kNoted, kMetAt);
  EXPECT_THAT(lines.dialled, ElementsAre(2, 3, 1));
  EXPECT_TRUE(session.has_left());
}

// A standby that takes it for one that leaves does not serve it.
TEST(ControlSession, GoesOnToTheNextStandbyWhereOneTakesItForGone) {
  const std::vector<Member> members = members_apart(6);
  RankLines lines;
  ControlSession session(members, 5, "job", kSilence, lines, kMetAt);
  session.on_closed(kMetAt);
  session.on_dialled(DialOutcome::kNoted, kMetAt);
  EXPECT_THAT(lines.dialled, ElementsAre(1, 2));
}

TEST(ControlSession, AsksNobodyAgainWhosePartHasEnded) {
  const std::vector<Member> members = members_apart(6);
  RankLines lines;
  ControlSession session(members, 5, "job", kSilence, lines, kMetAt);
  session.on_closed(kMetAt);
  for (int i = 0; i < 3; ++i) session.on_dialled(DialOutcome::kEnded, kMetAt);
  EXPECT_THAT(lines.dialled, ElementsAre(1, 2, 3));
  EXPECT_TRUE(session.is_lost());
  EXPECT_EQ(session.partition().code(), ErrorCode::kPartitioned);
}

TEST(ControlSession, SaysWhatItSeesOfAProcessOnItsHost) {
  const std::vector<Member> members = members_on_two_hosts(4);
  for (const Rank whose : {2, 0, 1}) {
    RankLines lines;
    ControlSession session(members, 1, "job", kSilence, lines, kMetAt);
    const std::string asked = encode_rank(MessageType::kAskSight, whose);
    session.on_message({MessageType::kAskSight, std::string_view(asked).substr(5)}, kMetAt);
    EXPECT_EQ(session.is_open(), whose != 1) << "nobody is asked about itself";
    if (whose == 1) continue;
    ASSERT_THAT(lines.said, ElementsAre(MessageType::kSight));
    EXPECT_EQ(decode_sight(std::string_view(lines.last).substr(5), 4)->sight,
              whose == 2 ? ProcessSight::kStopped : ProcessSight::kUnseen);
  }
}

TEST(ControlSession, SaysWhomItReaches) {
  const std::vector<Member> members = members_apart(4);
  RankLines lines;
  ControlSession session(members, 1, "job", kSilence, lines, kMetAt);
  const std::string asked = encode_rank(MessageType::kAskProbe, 3);
  session.on_message({MessageType::kAskProbe, std::string_view(asked).substr(5)}, kMetAt);
  EXPECT_THAT(lines.probed, ElementsAre(3));
  EXPECT_THAT(lines.said, ElementsAre());
  session.on_probed(3, true);
  ASSERT_THAT(lines.said, ElementsAre(MessageType::kProbed));
  const auto told = decode_probed(std::string_view(lines.last).substr(5), 4);
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->rank, 3);
  EXPECT_TRUE(told->is_reached);

  const std::string itself = encode_rank(MessageType::kAskProbe, 1);
  session.on_message({MessageType::kAskProbe, std::string_view(itself).substr(5)}, kMetAt);
  EXPECT_FALSE(session.is_open()) << "nobody is asked about itself";
}

TEST(ControlSession, SaysOfAnArbiterOnItsHostThatItIsStopped) {
  std::vector<Member> members = members_apart(4);
  for (const bool is_here : {true, false}) {
    members[3].host = members[is_here ? 0 : 1].host;
    RankLines lines;
    ControlSession session(members, 3, "job", kSilence, lines, kMetAt);
    TimePoint now = kMetAt;
    for (; now <= kMetAt + kSilence; now += milliseconds(100)) {
      session.on_wake(now);
      session.look_for_silence(now);
    }
    session.on_dialled(DialOutcome::kSeated, now);
    ASSERT_TRUE(session.has_news());
    EXPECT_THAT(session.take_news().decisions.front().message,
                HasSubstr(is_here ? "its process is stopped" : "its host cannot be reached"));
  }
}

TEST(ControlSession, AnswersAQuestionForAWordAtOnce) {
  const std::vector<Member> members = members_apart(4);
  RankLines lines;
  ControlSession session(members, 3, "job", kSilence, lines, kMetAt);
  session.on_message({MessageType::kAskWord, {}}, kMetAt);
  EXPECT_THAT(lines.said, ElementsAre(MessageType::kBeat));
}

TEST(ControlSession, TakesNoWordThatSaysMoreThanItMay) {
  const std::vector<Member> members = members_apart(6);
  for (const MessageType type :
       {MessageType::kBeat, MessageType::kPartEnded, MessageType::kAskWord}) {
    RankLines lines;
    ControlSession session(members, 5, "job", kSilence, lines, kMetAt);
    session.on_message({type, "x"}, kMetAt);
    ASSERT_TRUE(session.has_news());
    EXPECT_EQ(session.take_news().decisions.front().code, ErrorCode::kProtocol);
  }
}

}  // namespace
}  // namespace unisono::rendezvous
