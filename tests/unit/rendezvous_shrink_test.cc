// Who goes on after a failure: ShrinkAgreements with time as an argument, and its words on the
// wire.
#include <gmock/gmock.h>

#include <random>

#include "rendezvous/failure/shrink_agreements.h"
#include "rendezvous/failure/shrink_memory.h"
#include "rendezvous/messages/control_messages.h"
#include "tests/support/seed.h"

namespace unisono::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const TimePoint kAsked{seconds(1000)};
constexpr std::uint32_t kFailed = 7;
constexpr milliseconds kLongPatience{10'000};

// An arbiter of four ranks.
class Survivors : public testing::Test {
 protected:
  Status ask(Rank rank, TimePoint now = kAsked, std::vector<Rank> members = {0, 1, 2, 3},
             milliseconds patience = kLongPatience, std::uint32_t made = 0) {
    const std::vector<Rank> none, all{0, 1, 2};
    return agreements_.on_message(
        rank,
        {ShrinkStep::kAsk, kFailed, made, patience, std::move(members), {}, made == 0 ? none : all},
        now);
  }
  Status say(Rank rank, ShrinkStep step, std::uint32_t id, const Status& why = Status()) {
    return agreements_.on_message(rank, {step, kFailed, id, {}, {}, why}, kAsked);
  }
  Status leave(Rank rank, std::vector<Rank> members = {0, 1, 2, 3}) {
    return agreements_.on_message(
        rank, {ShrinkStep::kLeaves, kFailed, 0, {}, std::move(members), {}}, kAsked);
  }
  void die(Rank rank) {
    agreements_.on_decision(
        {ErrorCode::kRankFailed, rank, kEveryCommunicator, 0, "died " + std::to_string(rank)});
  }
  void decide(ErrorCode code, Rank rank, std::uint32_t communicator = kFailed) {
    agreements_.on_decision({code, rank, communicator, 0, "decided"});
  }
  std::vector<ShrinkAgreements::Outgoing> said(TimePoint now = kAsked) {
    auto words = agreements_.take(now);
    for (const auto& word : words) {
      if (word.message.step == ShrinkStep::kLeftOut) left_out_[word.target] = word.message.why;
    }
    std::erase_if(words,
                  [](const auto& word) { return word.message.step == ShrinkStep::kLeftOut; });
    return words;
  }

  // That each of `survivors`, and nobody else, is told to form a communicator of them. Its number.
  std::uint32_t expect_form(const std::vector<Rank>& survivors, TimePoint now = kAsked) {
    const auto words = said(now);
    EXPECT_THAT(words, SizeIs(survivors.size()));
    std::uint32_t id = 0;
    for (std::size_t i = 0; i < words.size() && i < survivors.size(); ++i) {
      EXPECT_EQ(words[i].message.step, ShrinkStep::kForm);
      EXPECT_EQ(words[i].target, survivors[i]);
      EXPECT_EQ(words[i].message.members, survivors);
      EXPECT_TRUE(id == 0 || words[i].message.id == id);
      id = words[i].message.id;
    }
    EXPECT_NE(id, 0u);
    return id;
  }
  void expect_done(const std::vector<Rank>& survivors, std::uint32_t id) {
    const auto words = said();
    EXPECT_THAT(words, SizeIs(survivors.size()));
    for (std::size_t i = 0; i < words.size() && i < survivors.size(); ++i) {
      EXPECT_EQ(words[i].message.step, ShrinkStep::kDone);
      EXPECT_EQ(words[i].target, survivors[i]);
      EXPECT_EQ(words[i].message.id, id);
    }
  }
  void expect_refused(Rank rank, ErrorCode code, const std::string& text, TimePoint now = kAsked) {
    const auto words = said(now);
    ASSERT_THAT(words, SizeIs(1));
    EXPECT_EQ(words[0].message.step, ShrinkStep::kRefused);
    EXPECT_EQ(words[0].target, rank);
    EXPECT_EQ(words[0].message.why.code(), code);
    EXPECT_THAT(words[0].message.why.message() + "$", HasSubstr(text));  // $: it ends there
  }

  ShrinkAgreements agreements_{4};
  std::map<Rank, Status> left_out_;
};

TEST_F(Survivors, AreAllThatCanStillAsk) {
  die(2);
  ASSERT_TRUE(ask(3));
  ASSERT_TRUE(ask(0));
  EXPECT_THAT(said(), IsEmpty());
  ASSERT_TRUE(ask(1));
  const std::uint32_t id = expect_form({0, 1, 3});
  ASSERT_TRUE(say(0, ShrinkStep::kReady, id));
  ASSERT_TRUE(say(3, ShrinkStep::kReady, id));
  EXPECT_THAT(said(), IsEmpty());
  ASSERT_TRUE(say(1, ShrinkStep::kReady, id));
  expect_done({0, 1, 3}, id);
  EXPECT_EQ(agreements_.next_due(), kNever);
}

TEST_F(Survivors, DoNotWaitForWhoDiesAfterTheyHaveAsked) {
  for (const Rank rank : {0, 1, 3}) ASSERT_TRUE(ask(rank));
  EXPECT_THAT(said(), IsEmpty());
  die(2);
  expect_form({0, 1, 3});
}

TEST_F(Survivors, BeginAnewWithoutWhoIsLostWhileTheyForm) {
  die(2);
  for (const Rank rank : {0, 1, 3}) ASSERT_TRUE(ask(rank));
  const std::uint32_t first = expect_form({0, 1, 3});
  ASSERT_TRUE(say(0, ShrinkStep::kReady, first));
  ASSERT_TRUE(say(3, ShrinkStep::kReady, first));
  die(3);
  EXPECT_THAT(said(), SizeIs(3));  // a word to the dead one is lost with it
  // What the first attempt still says changes nothing.
  ASSERT_TRUE(say(1, ShrinkStep::kReady, first));
  EXPECT_THAT(said(), IsEmpty());
}

// It must not be told both that the others go on without it and that all may.
TEST_F(Survivors, BeginAnewWithoutWhoIsLostInTheMomentInWhichTheLastIsReady) {
  for (const Rank rank : {0, 1, 2, 3}) ASSERT_TRUE(ask(rank));
  const std::uint32_t first = expect_form({0, 1, 2, 3});
  for (const Rank rank : {0, 1, 2, 3}) ASSERT_TRUE(say(rank, ShrinkStep::kReady, first));
  decide(ErrorCode::kRankFailed, 3, kEveryCommunicator);
  const auto words = said(kAsked + kLongPatience + kSuspectTime);
  ASSERT_THAT(words, SizeIs(4));
  EXPECT_EQ(words[0].target, 3);
  EXPECT_EQ(words[0].message.step, ShrinkStep::kRefused);
  for (std::size_t i = 1; i < words.size(); ++i) {
    EXPECT_EQ(words[i].message.step, ShrinkStep::kForm);
    EXPECT_THAT(words[i].message.members, ElementsAre(0, 1, 2));
  }
}

TEST_F(Survivors, UseTheCommunicatorOfTheLastAttempt) {
  for (const Rank rank : {0, 1, 2, 3}) ASSERT_TRUE(ask(rank));
  const std::uint32_t first = expect_form({0, 1, 2, 3});
  die(3);
  auto words = said();
  std::erase_if(words, [](const auto& word) { return word.target == 3; });
  ASSERT_THAT(words, SizeIs(3));
  const std::uint32_t second = words[0].message.id;
  EXPECT_NE(second, first);
  EXPECT_THAT(words[0].message.members, ElementsAre(0, 1, 2));
  for (const Rank rank : {0, 1, 2}) ASSERT_TRUE(say(rank, ShrinkStep::kReady, second));
  expect_done({0, 1, 2}, second);
}

TEST_F(Survivors, AreNotThoseThatTheJobHasDecidedAgainst) {
  decide(ErrorCode::kRankFailed, 1, kEveryCommunicator);  // alive, but its links are broken
  for (const Rank rank : {0, 2}) ASSERT_TRUE(ask(rank));
  ASSERT_TRUE(ask(1));
  expect_refused(1, ErrorCode::kRankFailed, "go on without this rank");
  ASSERT_TRUE(ask(3));
  expect_form({0, 2, 3});
}

TEST_F(Survivors, HearOfADecisionAgainstThemAfterTheyHaveAsked) {
  for (const Rank rank : {0, 1, 2}) ASSERT_TRUE(ask(rank));
  EXPECT_THAT(said(), IsEmpty());
  decide(ErrorCode::kProtocol, 1);
  expect_refused(1, ErrorCode::kProtocol, "go on without this rank");
  ASSERT_TRUE(ask(3));
  expect_form({0, 2, 3});
}

// Not of what the members of a communicator have said of each other.
TEST_F(Survivors, HearWhoseRanksTheJobsWordNames) {
  const std::string of_job = " (ranks as the job numbers them)";
  decide(ErrorCode::kProtocol, 1);
  ASSERT_TRUE(ask(1));
  expect_refused(1, ErrorCode::kProtocol, "go on without this rank: decided$");
  die(2);
  ASSERT_TRUE(ask(2));
  expect_refused(2, ErrorCode::kRankFailed, "go on without this rank: died 2" + of_job + "$");
  ASSERT_TRUE(leave(3));
  ASSERT_TRUE(ask(3));
  expect_refused(3, ErrorCode::kRankLeft, "rank 3 has closed the communicator" + of_job + "$");
}

TEST_F(Survivors, AreNotThoseThatHaveLeft) {
  agreements_.on_gone(1, {ErrorCode::kRankLeft, "left", 1});
  decide(ErrorCode::kRankLeft, 2);  // has closed this communicator, not the job
  ASSERT_TRUE(ask(0));
  ASSERT_TRUE(ask(3));
  expect_form({0, 3});
}

TEST_F(Survivors, OfOneCommunicatorMayBeOutOfAnother) {
  decide(ErrorCode::kRankLeft, 2, kFailed + 1);
  for (const Rank rank : {0, 1, 2, 3}) ASSERT_TRUE(ask(rank));
  expect_form({0, 1, 2, 3});
}

TEST_F(Survivors, WaitNoLongerThanTheLeastPatientOne) {
  ASSERT_TRUE(ask(0, kAsked, {0, 1, 2, 3}, seconds(60)));
  ASSERT_TRUE(ask(1, kAsked + seconds(1), {0, 1, 2, 3}, seconds(5)));
  EXPECT_EQ(agreements_.next_due(), kAsked + seconds(6));
  EXPECT_THAT(said(kAsked + milliseconds(5999)), IsEmpty());
  expect_form({0, 1}, kAsked + seconds(6));
  ASSERT_TRUE(ask(2, kAsked + seconds(7)));
  expect_refused(2, ErrorCode::kTimeout, "had not asked");
}

TEST_F(Survivors, GiveASuspectedRankAMomentOnceAllOthersHaveAsked) {
  decide(ErrorCode::kTimeout, 3);
  ASSERT_TRUE(ask(0));
  ASSERT_TRUE(ask(1));
  EXPECT_THAT(said(), IsEmpty());
  EXPECT_EQ(agreements_.next_due(), kAsked + kLongPatience);  // rank 2 is not suspected
  const TimePoint all = kAsked + seconds(2);
  ASSERT_TRUE(ask(2, all));
  EXPECT_THAT(said(all), IsEmpty());
  EXPECT_EQ(agreements_.next_due(), all + kSuspectTime);
  expect_form({0, 1, 2}, all + kSuspectTime);
}

TEST_F(Survivors, TakeASuspectedRankThatComes) {
  decide(ErrorCode::kTimeout, 3);
  for (const Rank rank : {0, 1, 2, 3}) ASSERT_TRUE(ask(rank));
  expect_form({0, 1, 2, 3});
}

TEST_F(Survivors, AllFailWhereOneCannotFormTheCommunicator) {
  die(2);
  for (const Rank rank : {0, 1, 3}) ASSERT_TRUE(ask(rank));
  const std::uint32_t id = expect_form({0, 1, 3});
  ASSERT_TRUE(say(1, ShrinkStep::kCannot, id, {ErrorCode::kOutOfResources, "no memory", -1}));
  const auto words = said();
  ASSERT_THAT(words, SizeIs(3));
  for (const auto& word : words) {
    EXPECT_EQ(word.message.step, ShrinkStep::kRefused);
    EXPECT_EQ(word.message.why.code(), ErrorCode::kOutOfResources);
    EXPECT_EQ(word.message.why.rank(), 1);
    EXPECT_EQ(word.message.why.message(),
              "rank 1 of the job cannot make the communicator of the survivors: no memory");
  }
  // They may ask again.
  for (const Rank rank : {0, 1, 3}) ASSERT_TRUE(ask(rank));
  EXPECT_NE(expect_form({0, 1, 3}), id);
}

TEST_F(Survivors, MayShrinkTheSameCommunicatorAgain) {
  die(2);
  for (int time = 0; time < 2; ++time) {
    for (const Rank rank : {0, 1, 3}) ASSERT_TRUE(ask(rank));
    const std::uint32_t id = expect_form({0, 1, 3});
    for (const Rank rank : {0, 1, 3}) ASSERT_TRUE(say(rank, ShrinkStep::kReady, id));
    expect_done({0, 1, 3}, id);
  }
}

TEST_F(Survivors, DoNotInheritThePatienceOfWhoIsOut) {
  decide(ErrorCode::kRankFailed, 2, kEveryCommunicator);
  ASSERT_TRUE(ask(2, kAsked, {0, 1, 2, 3}, milliseconds(10)));
  expect_refused(2, ErrorCode::kRankFailed, "go on without this rank");
  EXPECT_EQ(agreements_.next_due(), kNever);
  ASSERT_TRUE(ask(3, kAsked, {0, 1, 2, 3}, milliseconds(10)));
  die(3);
  EXPECT_THAT(said(), SizeIs(1));
  const TimePoint later = kAsked + seconds(1);
  ASSERT_TRUE(ask(0, later));
  EXPECT_THAT(said(later), IsEmpty());
  EXPECT_EQ(agreements_.next_due(), later + kLongPatience);
  ASSERT_TRUE(ask(1, later));
  expect_form({0, 1}, later);
}

TEST_F(Survivors, HaveTimeAgainAfterTheirArbiterWasStopped) {
  agreements_.on_wake(kAsked);
  for (const Rank rank : {0, 1, 3}) ASSERT_TRUE(ask(rank));
  const TimePoint stopped = agreements_.next_due();
  EXPECT_LT(stopped, kAsked + kLongPatience) << "it looks whether it is run";
  agreements_.on_wake(stopped);
  const TimePoint runs = kAsked + kLongPatience + seconds(5);
  agreements_.on_wake(runs);
  EXPECT_THAT(said(runs), IsEmpty()) << "rank 2 was stopped as well";
  agreements_.on_wake(runs + milliseconds(500));
  EXPECT_THAT(said(runs + kSuspectTime - milliseconds(1)), IsEmpty());
  expect_form({0, 1, 3}, runs + kSuspectTime);
}

TEST_F(Survivors, DoNotWaitForEverForAnArbiterThatStumbles) {
  TimePoint now = kAsked;
  agreements_.on_wake(now);
  for (const Rank rank : {0, 1, 3}) ASSERT_TRUE(ask(rank));
  while (now < kAsked + kLongPatience + 3 * kSuspectTime) {
    now += seconds(2);
    agreements_.on_wake(now);
    if (!said(now).empty()) return;
  }
  FAIL() << "rank 2 never came";
}

TEST_F(Survivors, GoOnWithoutWhoDoesNotMakeTheCommunicatorInTime) {
  for (const Rank rank : {0, 1, 2, 3}) ASSERT_TRUE(ask(rank));
  const std::uint32_t first = expect_form({0, 1, 2, 3});
  for (const Rank rank : {0, 1, 3}) ASSERT_TRUE(say(rank, ShrinkStep::kReady, first));
  EXPECT_THAT(said(), IsEmpty());
  const TimePoint due = kAsked + kLongPatience + kSuspectTime;
  EXPECT_EQ(agreements_.next_due(), due);
  auto words = said(due);
  ASSERT_THAT(words, SizeIs(4));
  EXPECT_EQ(words[0].target, 2);
  EXPECT_EQ(words[0].message.step, ShrinkStep::kRefused);
  EXPECT_THAT(words[1].message.members, ElementsAre(0, 1, 3));
  // The others may wait for it in a call.
  const auto decisions = agreements_.take_decisions();
  ASSERT_THAT(decisions, SizeIs(1));
  EXPECT_EQ(decisions[0].communicator, first);
  EXPECT_EQ(decisions[0].failed_rank, 2);
}

TEST_F(Survivors, GoOnWithoutWhomADecisionOnTheirCommunicatorNames) {
  for (const Rank rank : {0, 1, 2, 3}) ASSERT_TRUE(ask(rank));
  const std::uint32_t first = expect_form({0, 1, 2, 3});
  decide(ErrorCode::kTimeout, 3, first);
  const auto words = said();
  ASSERT_THAT(words, SizeIs(4));
  EXPECT_EQ(words[0].target, 3);
  EXPECT_EQ(words[0].message.step, ShrinkStep::kRefused);
  EXPECT_THAT(words[1].message.members, ElementsAre(0, 1, 2));
}

TEST_F(Survivors, DoNotWaitForWhoHasClosedTheCommunicator) {
  ASSERT_TRUE(ask(0));
  ASSERT_TRUE(leave(1));
  ASSERT_TRUE(leave(3));
  EXPECT_THAT(said(), IsEmpty());
  ASSERT_TRUE(ask(2));
  expect_form({0, 2});
}

TEST_F(Survivors, AreRememberedForWhoComesAfterTheyHaveClosed) {
  for (const Rank rank : {0, 1, 2}) ASSERT_TRUE(ask(rank));
  const std::uint32_t id = expect_form({0, 1, 2}, kAsked + kLongPatience);
  for (const Rank rank : {0, 1, 2}) ASSERT_TRUE(say(rank, ShrinkStep::kReady, id));
  expect_done({0, 1, 2}, id);
  for (const Rank rank : {0, 1, 2}) ASSERT_TRUE(leave(rank));
  ASSERT_TRUE(ask(3));
  expect_refused(3, ErrorCode::kTimeout, "had not asked");
}

TEST_F(Survivors, BeginAnewWithWhoHasLostTheAttempt) {
  die(3);
  for (const Rank rank : {0, 1, 2}) ASSERT_TRUE(ask(rank));
  const std::uint32_t first = expect_form({0, 1, 2});
  ASSERT_TRUE(ask(1));
  EXPECT_NE(expect_form({0, 1, 2}), first);
}

// The arbiter before was lost when it had told some of them.
TEST_F(Survivors, UseWhatSomeOfThemUseByAnotherArbitersWord) {
  constexpr std::uint32_t kMade = 76;
  die(3);
  ASSERT_TRUE(ask(0, kAsked, {0, 1, 2, 3}, kLongPatience, kMade));
  EXPECT_THAT(said(), IsEmpty());
  ASSERT_TRUE(say(1, ShrinkStep::kFinished, kMade));
  expect_done({0}, kMade);
  ASSERT_TRUE(ask(2, kAsked, {0, 1, 2, 3}, kLongPatience, kMade));
  expect_done({2}, kMade);
  EXPECT_EQ(agreements_.next_due(), kNever);
  // Later they may shrink it again.
  for (const Rank rank : {0, 1, 2}) ASSERT_TRUE(ask(rank));
  EXPECT_NE(expect_form({0, 1, 2}), kMade);
}

// By the arbiter before, in time or not.
TEST_F(Survivors, GoOnWithoutWhomOthersHaveGoneOnWithout) {
  constexpr std::uint32_t kMade = 76;
  die(0);
  ASSERT_TRUE(ask(3));
  EXPECT_THAT(said(), IsEmpty());
  ASSERT_TRUE(say(1, ShrinkStep::kFinished, kMade));
  expect_refused(3, ErrorCode::kTimeout, "had not gone on");
  ASSERT_TRUE(ask(2));
  expect_refused(2, ErrorCode::kTimeout, "had not gone on");
  EXPECT_EQ(agreements_.next_due(), kNever);
}

TEST_F(Survivors, DropWhatTheyFormWhereOthersHaveGoneOnWithoutThem) {
  die(0);
  for (const Rank rank : {2, 3}) ASSERT_TRUE(ask(rank));
  const std::uint32_t id = expect_form({2, 3}, kAsked + kLongPatience);
  for (const Rank rank : {2, 3}) ASSERT_TRUE(say(rank, ShrinkStep::kReady, id));
  ASSERT_TRUE(say(1, ShrinkStep::kFinished, 76));
  const auto words = said();
  ASSERT_THAT(words, SizeIs(2));
  for (const auto& word : words) EXPECT_EQ(word.message.step, ShrinkStep::kRefused);
}

TEST_F(Survivors, GoOnWithoutWhomHasFailedAlthoughItHasHeardOfAnotherOne) {
  die(0);
  die(1);
  for (const Rank rank : {2, 3}) ASSERT_TRUE(ask(rank));
  const std::uint32_t id = expect_form({2, 3});
  ASSERT_TRUE(say(1, ShrinkStep::kFinished, 76));
  for (const Rank rank : {2, 3}) ASSERT_TRUE(say(rank, ShrinkStep::kReady, id));
  for (const auto& word : said()) EXPECT_EQ(word.message.step, ShrinkStep::kDone);
}

// It has gone on before, and says so where the others would now without it.
TEST_F(Survivors, MayShrinkTheSameCommunicatorAgainWithoutOneOfThem) {
  die(3);
  for (const Rank rank : {0, 1, 2}) ASSERT_TRUE(ask(rank));
  const std::uint32_t first = expect_form({0, 1, 2});
  for (const Rank rank : {0, 1, 2}) ASSERT_TRUE(say(rank, ShrinkStep::kReady, first));
  expect_done({0, 1, 2}, first);
  for (const Rank rank : {0, 1}) ASSERT_TRUE(ask(rank));
  const std::uint32_t second = expect_form({0, 1}, kAsked + kLongPatience);
  ASSERT_TRUE(say(2, ShrinkStep::kFinished, first));
  for (const Rank rank : {0, 1}) ASSERT_TRUE(say(rank, ShrinkStep::kReady, second));
  expect_done({0, 1}, second);
}

TEST_F(Survivors, AreToldToThoseThatTheyGoOnWithout) {
  decide(ErrorCode::kRankFailed, 3, kEveryCommunicator);
  for (const Rank rank : {0, 1}) ASSERT_TRUE(ask(rank));
  const std::uint32_t id = expect_form({0, 1}, kAsked + kLongPatience);
  for (const Rank rank : {0, 1}) ASSERT_TRUE(say(rank, ShrinkStep::kReady, id));
  expect_done({0, 1}, id);
  ASSERT_THAT(left_out_, SizeIs(2));
  EXPECT_EQ(left_out_[2].code(), ErrorCode::kTimeout);
  EXPECT_EQ(left_out_[3].code(), ErrorCode::kRankFailed);
}

TEST_F(Survivors, FormAnewWhatNobodyUses) {
  die(3);
  for (const Rank rank : {0, 1, 2}) {
    ASSERT_TRUE(ask(rank, kAsked, {0, 1, 2, 3}, kLongPatience, 76));
  }
  EXPECT_NE(expect_form({0, 1, 2}), 76u);
}

TEST(ShrinkMemory, RepeatsWhatAnotherArbiterHasToKnow) {
  ShrinkMemory memory;
  memory.on_said({ShrinkStep::kAsk, 5, 0, {}, {0, 1}, {}});
  memory.on_said({ShrinkStep::kAsk, 6, 0, {}, {0, 1}, {}});
  memory.on_said({ShrinkStep::kAsk, 7, 0, {}, {0, 1}, {}});
  for (const std::uint32_t communicator : {5, 6, 7}) {
    memory.on_word({ShrinkStep::kForm, communicator, 10 * communicator, {}, {0, 1}, {}}, 0);
  }
  memory.on_said({ShrinkStep::kReady, 5, 50, {}, {}, {}});
  memory.on_said({ShrinkStep::kReady, 6, 60, {}, {}, {}});
  memory.on_said({ShrinkStep::kReady, 7, 70, {}, {}, {}});
  memory.on_word({ShrinkStep::kDone, 6, 60, {}, {}, {}}, 0);
  memory.on_word({ShrinkStep::kForm, 7, 71, {}, {0, 1}, {}}, 0);
  memory.on_said({ShrinkStep::kLeaves, 8, 0, {}, {0, 1}, {}});
  const auto words = memory.to_repeat();
  ASSERT_THAT(words, SizeIs(4));
  EXPECT_EQ(words[0].step, ShrinkStep::kFinished);
  EXPECT_EQ(words[0].communicator, 6u);
  EXPECT_EQ(words[0].id, 60u);
  EXPECT_EQ(words[1].step, ShrinkStep::kLeaves);
  EXPECT_EQ(words[2].step, ShrinkStep::kAsk);
  EXPECT_EQ(words[2].id, 50u);
  EXPECT_THAT(words[2].made, ElementsAre(0, 1));
  EXPECT_EQ(words[3].communicator, 7u);
  EXPECT_EQ(words[3].id, 0u);
  memory.on_word({ShrinkStep::kRefused, 5, 0, {}, {}, {ErrorCode::kTimeout, "late", 1}}, 0);
  EXPECT_THAT(memory.to_repeat(), SizeIs(3));
}

TEST(ShrinkMemory, RefusesInTheNameOfTheArbiterThatLeftItsRankOut) {
  ShrinkMemory memory;
  const Status late(ErrorCode::kTimeout, "late", 1);
  EXPECT_FALSE(memory.refusal_of(5));
  const auto answer = memory.answer_to({ShrinkStep::kLeftOut, 5, 50, {}, {}, late}, 0);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->step, ShrinkStep::kKnows);
  EXPECT_EQ(answer->id, 50u);
  const auto refusal = memory.refusal_of(5);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->step, ShrinkStep::kRefused);
  EXPECT_EQ(refusal->why.message(), "late");
  EXPECT_FALSE(memory.refusal_of(6));
}

TEST(ShrinkMemory, SaysThatItsRankHasGoneOnWhereOthersWouldWithoutIt) {
  ShrinkMemory memory;
  memory.on_said({ShrinkStep::kAsk, 5, 0, {}, {0, 1}, {}});
  memory.on_word({ShrinkStep::kDone, 5, 40, {}, {}, {}}, 0);
  const auto answer =
      memory.answer_to({ShrinkStep::kLeftOut, 5, 50, {}, {}, {ErrorCode::kTimeout, "late", 1}}, 0);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->step, ShrinkStep::kFinished);
  EXPECT_EQ(answer->id, 40u);
  EXPECT_FALSE(memory.refusal_of(5));
}

// Else two parts could count it.
TEST(ShrinkMemory, GivesItsWordToOneArbiterAlone) {
  ShrinkMemory memory;
  const Status late(ErrorCode::kTimeout, "late", 1);
  memory.on_said({ShrinkStep::kAsk, 5, 0, {}, {0, 1}, {}});
  ASSERT_TRUE(memory.answer_to({ShrinkStep::kLeftOut, 5, 50, {}, {}, late}, 0));
  EXPECT_THAT(memory.to_repeat(), IsEmpty()) << "nor does it ask any more";
  EXPECT_TRUE(memory.answer_to({ShrinkStep::kLeftOut, 5, 51, {}, {}, late}, 0)) << "anew";
  EXPECT_FALSE(memory.answer_to({ShrinkStep::kLeftOut, 5, 60, {}, {}, late}, 2));
  EXPECT_TRUE(memory.answer_to({ShrinkStep::kLeftOut, 6, 61, {}, {}, late}, 2)) << "another one";
}

TEST_F(Survivors, DoNotGoOnByTheWordOfAnArbiterThatIsCutOff) {
  ASSERT_TRUE(ask(0));
  agreements_.close({{0, 1}, {2, 3, 4}});
  expect_refused(0, ErrorCode::kPartitioned, "rank 0 is cut off");
  ASSERT_TRUE(ask(1));
  expect_refused(1, ErrorCode::kPartitioned, "(ranks as the job numbers them)$");
}

TEST_F(Survivors, RefuseWhatNoCorrectRankSays) {
  EXPECT_EQ(ask(3, kAsked, {0, 1, 2}).code(), ErrorCode::kProtocol);
  EXPECT_EQ(leave(3, {0, 1, 2}).code(), ErrorCode::kProtocol);
  ASSERT_TRUE(ask(0));
  EXPECT_EQ(ask(1, kAsked, {0, 1}).code(), ErrorCode::kProtocol);
  EXPECT_EQ(say(1, ShrinkStep::kForm, 1).code(), ErrorCode::kProtocol);
  for (const Rank rank : {1, 2}) ASSERT_TRUE(ask(rank));
  die(3);
  const std::uint32_t id = expect_form({0, 1, 2});
  EXPECT_EQ(say(3, ShrinkStep::kReady, id).code(), ErrorCode::kProtocol);
}

TEST_F(Survivors, OfMoreCommunicatorsThanAnybodyHasAreBounded) {
  for (std::uint32_t other = 0; other < 5000; ++other) {
    decide(ErrorCode::kTimeout, 1, 100 + other);
  }
  for (const Rank rank : {0, 1, 2, 3}) ASSERT_TRUE(ask(rank));
  expect_form({0, 1, 2, 3});
  std::size_t refused = 0;
  for (std::uint32_t other = 0; other < 5000; ++other) {
    ASSERT_TRUE(agreements_.on_message(
        0, {ShrinkStep::kAsk, 10'000 + other, 0, kLongPatience, {0, 1}, {}}, kAsked));
    refused += said().size();
  }
  EXPECT_GT(refused, 0u);
}

std::string_view shrink_body(const std::string& message) {
  return std::string_view(message).substr(5);  // length and type
}

TEST(ShrinkMessages, RoundTrip) {
  const ShrinkMessage sent{ShrinkStep::kRefused, 7,      9,
                           milliseconds(1234),   {1, 3}, {ErrorCode::kTimeout, "text", 2}};
  const auto got = decode_shrink(shrink_body(encode_shrink(sent, 4)), 4);
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->step, sent.step);
  EXPECT_EQ(got->communicator, 7u);
  EXPECT_EQ(got->id, 9u);
  EXPECT_EQ(got->patience, milliseconds(1234));
  EXPECT_THAT(got->members, ElementsAre(1, 3));
  EXPECT_EQ(got->why.code(), ErrorCode::kTimeout);
  EXPECT_EQ(got->why.rank(), 2);
  EXPECT_EQ(got->why.message(), "text");
}

TEST(ShrinkMessages, TruncatedOrHostileOnesAreRefused) {
  const std::string whole =
      encode_shrink({ShrinkStep::kCannot, 7, 9, {}, {0, 2}, {ErrorCode::kSystem, "text", 2}}, 4);
  const std::string_view body = shrink_body(whole);
  for (std::size_t bytes = 0; bytes < body.size(); ++bytes) {
    EXPECT_FALSE(decode_shrink(body.substr(0, bytes), 4).has_value()) << bytes;
  }
  EXPECT_FALSE(decode_shrink(std::string(body) + "x", 4).has_value());
  EXPECT_FALSE(decode_shrink(body, 2).has_value()) << "a rank beyond the world";
  std::string changed(body);
  for (const char step : {0, 11}) {
    changed[0] = step;
    EXPECT_FALSE(decode_shrink(changed, 4).has_value());
  }
  const test::SeedTrace seed_trace;
  std::mt19937_64 random = test::random_stream(18);
  for (int round = 0; round < 2000; ++round) {
    std::string noise(body);
    for (int flips = 0; flips < 4; ++flips)
      noise[random() % noise.size()] = static_cast<char>(random());
    static_cast<void>(decode_shrink(noise, 4));
  }
}

}  // namespace
}  // namespace unisono::rendezvous
