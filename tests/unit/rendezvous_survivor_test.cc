// A member's way to the communicator of the survivors, with time as an argument and a test in the
// arbiter's place.
#include <gmock/gmock.h>

#include "base/grace_periods.h"
#include "rendezvous/client/survivor.h"
#include "rendezvous/failure/shrink_agreements.h"
#include "rendezvous/messages/arbiter_connection.h"

namespace unisono::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using Task = Survivor::Task;

const TimePoint kAskedAt{seconds(1000)};
constexpr std::uint32_t kFailedOne = 7, kMade = 70;
constexpr milliseconds kPatienceOfOne{5'000};

/// Keeps what is said about shrinking.
class SaidWords final : public ArbiterConnection {
 public:
  bool has_news() const override { return false; }
  ArbiterNews take_news() override { return {}; }
  void catch_up() override {}
  bool is_lost() const override { return lost; }
  bool is_last() const override { return last; }
  Status partition() const override { return cut_off; }
  milliseconds silence() const override { return limit; }
  void report(std::string) override {}
  void report_lasting(std::string) override {}
  void report_broken_link(Rank, const Status&) override {}
  void report_waiting(const WaitMessage&) override {}
  void report_timeout(const WaitMessage&) override {}
  void withdraw_timeout(const WaitMessage&) override {}
  void say_shrink(const ShrinkMessage& message) override { words.push_back(message); }
  void leave() override {}

  std::vector<ShrinkStep> steps() const {
    std::vector<ShrinkStep> steps;
    for (const ShrinkMessage& word : words) steps.push_back(word.step);
    return steps;
  }

  bool lost = false, last = false;
  Status cut_off;
  milliseconds limit{3000};
  std::vector<ShrinkMessage> words;
};

// Rank 1 of ranks 0 to 3, which has asked.
class SurvivorTest : public testing::Test {
 protected:
  SurvivorTest() { survivor_.ask(kAskedAt); }

  Task hear(ShrinkStep step, std::vector<Rank> members = {}, std::uint32_t id = kMade) {
    return survivor_.advance(ShrinkMessage{step, kFailedOne, id, {}, std::move(members), {}},
                             kAskedAt);
  }
  Task look(TimePoint now = kAskedAt) { return survivor_.advance(std::nullopt, now); }
  void form() {
    ASSERT_EQ(hear(ShrinkStep::kForm, {0, 1, 3}), Task::kForm);
    survivor_.on_formed(Status(), kAskedAt);
  }

  SaidWords* said_ = new SaidWords;  // the client's
  ArbiterClient arbiter_{World{.rank = 1, .size = 4, .job_id = "job"},
                         std::unique_ptr<ArbiterConnection>(said_)};
  Survivor survivor_{arbiter_, kFailedOne, {0, 1, 2, 3}, kPatienceOfOne};
};

TEST_F(SurvivorTest, WaitsForTheArbiterHoweverLongItsPatienceIs) {
  Survivor patient{arbiter_, kFailedOne, {0, 1, 2, 3}, milliseconds::max()};
  patient.ask(kAskedAt);
  EXPECT_EQ(patient.advance(std::nullopt, kAskedAt), Task::kWait);
}

TEST_F(SurvivorTest, MakesWhatTheArbiterNamesAndUsesItOnceAllHaveMadeIt) {
  EXPECT_EQ(look(), Task::kWait);
  ASSERT_EQ(hear(ShrinkStep::kForm, {0, 1, 3}), Task::kForm);
  EXPECT_EQ(survivor_.id(), kMade);
  EXPECT_THAT(survivor_.survivors(), ElementsAre(0, 1, 3));
  survivor_.on_formed(Status(), kAskedAt);
  EXPECT_EQ(look(), Task::kWait);
  EXPECT_EQ(hear(ShrinkStep::kDone), Task::kUse);
  EXPECT_THAT(said_->steps(), ElementsAre(ShrinkStep::kAsk, ShrinkStep::kReady));
  EXPECT_EQ(said_->words[0].patience, kPatienceOfOne);
  EXPECT_EQ(said_->words[1].id, kMade);
}

TEST_F(SurvivorTest, UsesNothingThatOthersHaveMade) {
  form();
  EXPECT_EQ(hear(ShrinkStep::kDone, {}, kMade + 1), Task::kWait);
  ASSERT_EQ(hear(ShrinkStep::kForm, {0, 1}, kMade + 1), Task::kForm);
  survivor_.on_formed({ErrorCode::kRankFailed, "rank 0 died", 0}, kAskedAt);
  EXPECT_EQ(hear(ShrinkStep::kDone, {}, kMade + 1), Task::kWait) << "it has made none";
}

TEST_F(SurvivorTest, SaysThatItCannotOnceNothingExplainsWhy) {
  ASSERT_EQ(hear(ShrinkStep::kForm, {0, 1, 3}), Task::kForm);
  survivor_.on_formed({ErrorCode::kOutOfResources, "no memory", 1}, kAskedAt);
  EXPECT_EQ(hear(ShrinkStep::kDone, {}, kMade + 1), Task::kWait) << "of another attempt";
  EXPECT_EQ(survivor_.next_due(), kAskedAt + grace::kDecision);
  EXPECT_THAT(said_->steps(), ElementsAre(ShrinkStep::kAsk));
  EXPECT_EQ(look(survivor_.next_due()), Task::kWait);
  EXPECT_THAT(said_->steps(), ElementsAre(ShrinkStep::kAsk, ShrinkStep::kCannot));
  EXPECT_EQ(said_->words.back().why.rank(), 1);
}

TEST_F(SurvivorTest, BeginsAnewWithoutSayingThatItCannot) {
  ASSERT_EQ(hear(ShrinkStep::kForm, {0, 1, 3}), Task::kForm);
  survivor_.on_formed({ErrorCode::kRankFailed, "rank 3 died", 3}, kAskedAt);
  ASSERT_EQ(hear(ShrinkStep::kForm, {0, 1}, kMade + 1), Task::kForm);
  survivor_.on_formed(Status(), kAskedAt);
  EXPECT_EQ(look(kAskedAt + grace::kDecision), Task::kWait);
  EXPECT_THAT(said_->steps(), ElementsAre(ShrinkStep::kAsk, ShrinkStep::kReady));
}

TEST_F(SurvivorTest, StopsWhereItIsRefused) {
  form();
  EXPECT_EQ(survivor_.advance(ShrinkMessage{ShrinkStep::kRefused,
                                            kFailedOne,
                                            0,
                                            {},
                                            {},
                                            {ErrorCode::kRankFailed, "it came too late", 1}},
                              kAskedAt),
            Task::kStop);
  EXPECT_EQ(survivor_.why().message(), "it came too late");
}

TEST_F(SurvivorTest, MakesNothingOfOthersThanItsMembers) {
  for (const std::vector<Rank>& named : {std::vector<Rank>{0, 3}, {0, 1, 4}, {}}) {
    EXPECT_EQ(hear(ShrinkStep::kForm, named), Task::kWait);
    EXPECT_EQ(look(kAskedAt + grace::kDecision), Task::kWait);
    EXPECT_EQ(said_->words.back().step, ShrinkStep::kCannot);
    EXPECT_EQ(said_->words.back().why.code(), ErrorCode::kProtocol);
  }
}

TEST_F(SurvivorTest, GoesOnAloneOnlyWhereNobodyElseIsLeft) {
  said_->lost = true;
  EXPECT_EQ(look(), Task::kStop);
  EXPECT_EQ(survivor_.why().code(), ErrorCode::kRankFailed);
  said_->last = true;
  EXPECT_EQ(look(), Task::kGoAlone);
}

TEST_F(SurvivorTest, HearsThatItIsOfTheSmallerPart) {
  said_->lost = true;
  said_->cut_off = {ErrorCode::kPartitioned, "cut off", 1};
  EXPECT_EQ(look(), Task::kStop);
  EXPECT_EQ(survivor_.why().code(), ErrorCode::kPartitioned);
}

TEST_F(SurvivorTest, WaitsForAnAnswerLongerThanTheArbiterWaitsForOthers) {
  const TimePoint lost = survivor_.next_due();
  EXPECT_GT(lost, kAskedAt + kPatienceOfOne + kSuspectTime);
  EXPECT_EQ(look(lost - milliseconds(1)), Task::kWait);
  EXPECT_EQ(look(lost), Task::kStop);
  EXPECT_THAT(survivor_.why().message(), HasSubstr("do not answer"));
}

// It is asked anew of the next one then.
TEST_F(SurvivorTest, WaitsUntilASilentArbiterWouldHaveBeenFoundOut) {
  said_->limit = seconds(60);
  survivor_.ask(kAskedAt);
  EXPECT_GT(survivor_.next_due(), kAskedAt + kPatienceOfOne + kSuspectTime + seconds(60));
}

}  // namespace
}  // namespace unisono::rendezvous
