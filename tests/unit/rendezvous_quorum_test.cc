// Which part goes on where ranks do not hear each other: the rule alone, and with it the survivors
// of a communicator.
#include <gmock/gmock.h>

#include <map>

#include "rendezvous/failure/quorum.h"
#include "rendezvous/failure/shrink_agreements.h"

namespace unisono::rendezvous {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const TimePoint kLookedAt{seconds(1000)};

// Hosts of two ranks.
struct Known final : Evidence {
  bool has_ended(Rank rank) const override { return ended.contains(rank); }
  bool may_answer(Rank rank) const override { return heard.contains(rank); }
  bool is_awaited(Rank rank) const override { return awaited.contains(rank); }
  HostKey host_of(Rank rank) const override { return {"host", 0, rank / 2}; }
  std::vector<Rank> other_holders() const override { return holders; }

  std::set<Rank> ended, heard, awaited;
  std::vector<Rank> holders{0, 1, 2, 3};
};

auto those_heard(const Known& known) {
  return [&known](Rank rank) { return known.may_answer(rank); };
}

TEST(Quorum, IsMoreThanHalfOrTheHalfWithTheLowestRank) {
  const std::set<Rank> here{1, 4, 5};
  EXPECT_TRUE(may_go_on({here, {}}));
  EXPECT_TRUE(may_go_on({here, {2, 3}}));
  EXPECT_TRUE(may_go_on({here, {2, 3, 6}}));  // rank 1 is here
  EXPECT_FALSE(may_go_on({here, {2, 3, 6, 7}}));
  EXPECT_FALSE(may_go_on({{2, 4}, {1, 5}}));
  EXPECT_TRUE(may_go_on({{2, 4}, {5}}));
  EXPECT_FALSE(may_go_on({{}, {5}}));
  EXPECT_TRUE(may_go_on({{}, {}}));  // nobody is elsewhere
}

// Any two parts of any job, whatever each knows of those that have ended.
TEST(Quorum, IsNeverThatOfTwoParts) {
  constexpr unsigned kRanks = 6, kPlaces = 729;  // each in one part, in the other, or dead
  for (unsigned places = 0; places < kPlaces; ++places) {
    std::set<Rank> parts[3];
    for (unsigned rank = 0, rest = places; rank < kRanks; ++rank, rest /= 3) {
      parts[rest % 3].insert(static_cast<Rank>(rank));
    }
    const auto& [one, other, dead] = parts;
    if (one.empty() || other.empty()) continue;
    const auto with_dead = [&dead = dead](std::set<Rank> part) {
      part.insert(dead.begin(), dead.end());
      return part;
    };
    const bool one_may = may_go_on({one, other}) || may_go_on({one, with_dead(other)});
    const bool other_may = may_go_on({other, one}) || may_go_on({other, with_dead(one)});
    EXPECT_FALSE(one_may && other_may) << places;
  }
}

TEST(Quorum, CountsNobodyWhoHasEndedOrIsStoppedBesideASurvivor) {
  Known known;
  known.ended = {5, 6, 7};
  known.heard = {4, 5};  // 5 has come again
  const Parts parts = parts_of({0, 1, 2, 3, 4, 5, 6, 7}, {0, 2}, those_heard(known), known);
  EXPECT_THAT(parts.here, ElementsAre(0, 2, 4, 5));
  EXPECT_THAT(parts.elsewhere, IsEmpty());  // 1 and 3 are stopped
}

// Ranks 1 and 3 may hear an arbiter of 5 and 6, which those beside them do not.
TEST(Quorum, CountsThoseBesideASurvivorWhereOthersMayGoOn) {
  Known known;
  known.ended = {7};
  known.heard = {4};
  const Parts parts = parts_of({0, 1, 2, 3, 4, 5, 6, 7}, {0, 2}, those_heard(known), known);
  EXPECT_THAT(parts.here, ElementsAre(0, 2, 4));
  EXPECT_THAT(parts.elsewhere, ElementsAre(1, 3, 5, 6));
}

TEST(Quorum, ThatIsLackingIsToldByNamesAndNumbers) {
  const Status why = partitioned(5, {{4, 5}, {0, 1, 2}});
  EXPECT_EQ(why.code(), ErrorCode::kPartitioned);
  EXPECT_EQ(why.rank(), 5);
  EXPECT_THAT(
      why.message(),
      AllOf(HasSubstr("rank 5 is cut off: it hears ranks 4 and 5, 2 of 5 that may live, and "
                      "not ranks 0, 1 and 2"),
            HasSubstr("start the job anew")));
}

// Ranks of four ask to go on without the others, which are named as failed.
void ask(const std::vector<Rank>& asking, ShrinkAgreements* agreements) {
  for (Rank rank = 0; rank < 4; ++rank) {
    const bool asks = std::find(asking.begin(), asking.end(), rank) != asking.end();
    if (asks) {
      EXPECT_TRUE(agreements->on_message(
          rank, {ShrinkStep::kAsk, 7, 0, seconds(10), {0, 1, 2, 3}, {}}, kLookedAt));
    } else {
      agreements->on_decision({ErrorCode::kRankFailed, rank, kEveryCommunicator, 0, "silent"});
    }
  }
}

std::map<Rank, ShrinkMessage> words_of(ShrinkAgreements* agreements, TimePoint now = kLookedAt) {
  std::map<Rank, ShrinkMessage> words;
  for (const auto& each : agreements->take(now)) words[each.target] = each.message;
  return words;
}

std::map<Rank, ShrinkMessage> heard_by(const std::vector<Rank>& asking, const Known& known) {
  ShrinkAgreements agreements(4, 1, &known);
  ask(asking, &agreements);
  return words_of(&agreements);
}

TEST(SurvivorsOfAPartition, GoOnAsTheHalfWithTheLowestRank) {
  for (const auto& [rank, word] : heard_by({0, 1}, {})) {
    EXPECT_EQ(word.step, ShrinkStep::kForm) << rank;
  }
}

TEST(SurvivorsOfAPartition, AreRefusedAsTheOtherHalf) {
  const auto words = heard_by({2, 3}, {});
  ASSERT_THAT(words, SizeIs(2));
  for (const auto& [rank, word] : words) {
    EXPECT_EQ(word.step, ShrinkStep::kRefused);
    EXPECT_EQ(word.why.code(), ErrorCode::kPartitioned);
    EXPECT_EQ(word.why.rank(), rank);
  }
}

TEST(SurvivorsOfAPartition, GoOnWhereTheOthersHaveNobodyToHoldAnArbiter) {
  Known known;
  known.holders = {2};
  const auto words = heard_by({2, 3}, known);
  ASSERT_THAT(words, SizeIs(2));
  for (const auto& [rank, word] : words) EXPECT_EQ(word.step, ShrinkStep::kForm) << rank;
}

TEST(SurvivorsOfAPartition, GoOnWhereTheOthersHaveEnded) {
  Known known;
  known.ended = {0};
  for (const auto& [rank, word] : heard_by({2, 3}, known)) {
    EXPECT_EQ(word.step, ShrinkStep::kForm) << rank;
    EXPECT_THAT(word.members, ElementsAre(2, 3));
  }
}

// However little patience those have that have come.
TEST(SurvivorsOfALostArbiter, WaitForThoseThatAreOnTheirWayToTheNextOne) {
  Known known;
  known.awaited = {3};
  ShrinkAgreements agreements(4, 1, &known);
  for (const Rank rank : {0, 1, 2}) {
    EXPECT_TRUE(agreements.on_message(rank, {ShrinkStep::kAsk, 7, 0, seconds(1), {0, 1, 2, 3}, {}},
                                      kLookedAt));
  }
  const TimePoint later = kLookedAt + seconds(3);
  EXPECT_THAT(words_of(&agreements, later), IsEmpty());
  EXPECT_GT(agreements.next_due(), later) << "nothing changes at once";
  known.awaited = {};
  EXPECT_THAT(words_of(&agreements, agreements.next_due()), SizeIs(3));
}

// Ranks 2 and 3 of four, which hear 0 and 1 yet, and have made their communicator.
class SurvivorsThatAreFew : public testing::Test {
 protected:
  SurvivorsThatAreFew() {
    known_.heard = {0, 1};
    ask({2, 3}, &agreements_);
    told_ = words_of(&agreements_);
    for (const Rank rank : {2, 3}) say(rank, ShrinkStep::kReady);
  }

  void say(Rank rank, ShrinkStep step) {
    EXPECT_TRUE(agreements_.on_message(rank, {step, 7, told_[2].id, {}, {}, {}}, kLookedAt));
  }
  void expect_refused(TimePoint now = kLookedAt) {
    const auto words = words_of(&agreements_, now);
    ASSERT_THAT(words, SizeIs(2));
    for (const auto& [rank, word] : words) {
      EXPECT_EQ(word.step, ShrinkStep::kRefused);
      EXPECT_EQ(word.why.code(), ErrorCode::kPartitioned);
    }
    EXPECT_EQ(agreements_.next_due(), kNever);
  }

  Known known_;
  ShrinkAgreements agreements_{4, 1, &known_};
  std::map<Rank, ShrinkMessage> told_;
};

TEST_F(SurvivorsThatAreFew, GoOnOnceEnoughOthersHaveSaidThatTheyKnow) {
  ASSERT_THAT(told_, SizeIs(4)) << "the others are told too";
  for (const auto& [rank, word] : told_) {
    EXPECT_EQ(word.step, rank < 2 ? ShrinkStep::kLeftOut : ShrinkStep::kForm) << rank;
  }
  EXPECT_THAT(words_of(&agreements_), IsEmpty());
  say(1, ShrinkStep::kKnows);
  const auto words = words_of(&agreements_);
  ASSERT_THAT(words, SizeIs(3)) << "rank 0 is told again";
  for (const Rank rank : {2, 3}) EXPECT_EQ(words.at(rank).step, ShrinkStep::kDone) << rank;
}

// Beyond a partition that does not show yet.
TEST_F(SurvivorsThatAreFew, AreRefusedWhereNobodyElseSaysSo) {
  const TimePoint due = agreements_.next_due();
  EXPECT_THAT(words_of(&agreements_, due - std::chrono::milliseconds(1)), IsEmpty());
  expect_refused(due);
}

TEST_F(SurvivorsThatAreFew, AreRefusedOnceTheOthersAreNotHeard) {
  known_.heard = {};
  expect_refused();
}

// By whom the others are held up that have not made it either.
TEST(SurvivorsOfAPartition, GoOnWithoutWhomDoesNotHearTheArbiterWhereAllAreLate) {
  for (const bool is_deaf : {false, true}) {
    Known known;
    known.heard = {0, 1, 2, 3};
    ShrinkAgreements agreements(4, 1, &known);
    ask({0, 1, 2, 3}, &agreements);
    EXPECT_THAT(words_of(&agreements), SizeIs(4));
    if (is_deaf) known.heard.erase(3);
    const auto words = words_of(&agreements, agreements.next_due() + seconds(60));
    EXPECT_EQ(words.at(3).step, ShrinkStep::kRefused);
    for (const Rank rank : {0, 1, 2}) {
      EXPECT_EQ(words.at(rank).step, is_deaf ? ShrinkStep::kForm : ShrinkStep::kRefused) << rank;
    }
    EXPECT_EQ(agreements.take_decisions().front().failed_rank, is_deaf ? 3 : 0);
  }
}

// Of six, which have lost their arbiter while they agreed, those of ranks 2 to 5 that are not named
// here have asked the next one. Some had made what ranks 0 to 3 may use, by that arbiter's word.
class SurvivorsOfTwoArbiters : public testing::Test {
 protected:
  static constexpr std::uint32_t kMade = 70;

  void ask(Rank rank, const std::vector<Rank>& made) {
    EXPECT_TRUE(agreements_.on_message(
        rank,
        {ShrinkStep::kAsk, 7, made.empty() ? 0 : kMade, seconds(1), {0, 1, 2, 3, 4, 5}, {}, made},
        kLookedAt));
  }
  std::map<Rank, ShrinkMessage> words() {
    std::map<Rank, ShrinkMessage> words = words_of(&agreements_, kLookedAt + seconds(1));
    EXPECT_EQ(words.size(), 4u);
    return words;
  }

  Known known_;
  ShrinkAgreements agreements_{6, 1, &known_};
};

// Ranks 0 and 1 may, and would be no fewer.
TEST_F(SurvivorsOfTwoArbiters, DoNotGoOnWhereTheOthersMayFromWhatTheyHaveMade) {
  for (const Rank rank : {2, 3}) ask(rank, {0, 1, 2, 3});
  for (const Rank rank : {4, 5}) ask(rank, {});
  for (const auto& [rank, word] : words()) {
    EXPECT_EQ(word.why.code(), ErrorCode::kPartitioned) << rank;
    EXPECT_THAT(word.why.message(), HasSubstr("ranks 2 and 3, 2 of 4 that may live")) << rank;
  }
}

TEST_F(SurvivorsOfTwoArbiters, FormAnewWhereTheyAreMostOfIt) {
  for (const Rank rank : {2, 3}) ask(rank, {0, 2, 3});
  for (const Rank rank : {4, 5}) ask(rank, {});
  for (const auto& [rank, word] : words()) EXPECT_EQ(word.step, ShrinkStep::kForm) << rank;
}

// One that lies can keep the others from going on, and has none of them condemned.
TEST_F(SurvivorsOfTwoArbiters, NeedMostOfWhateverIsSaidOfIt) {
  ask(2, {0, 1, 2});
  ask(3, {0, 2, 3});
  for (const Rank rank : {4, 5}) ask(rank, {});
  for (const auto& [rank, word] : words()) {
    EXPECT_EQ(word.why.code(), ErrorCode::kPartitioned) << rank;
  }
}

TEST_F(SurvivorsOfTwoArbiters, FormAnewWhatOneOfThemHasNotMade) {
  ask(2, {0, 1, 2, 3});
  for (const Rank rank : {3, 4, 5}) ask(rank, {});
  for (const auto& [rank, word] : words()) EXPECT_EQ(word.step, ShrinkStep::kForm) << rank;
}

TEST_F(SurvivorsOfTwoArbiters, FormAnewWhatNobodyUsesWhoLives) {
  known_.ended = {0, 1};
  for (const Rank rank : {2, 3}) ask(rank, {0, 1, 2, 3});
  for (const Rank rank : {4, 5}) ask(rank, {});
  for (const auto& [rank, word] : words()) EXPECT_EQ(word.step, ShrinkStep::kForm) << rank;
}

TEST_F(SurvivorsOfTwoArbiters, HaveMadeWhatTheyAreInAlone) {
  const auto outcome = [&](std::uint32_t id, std::vector<Rank> made) {
    return agreements_
        .on_message(2, {ShrinkStep::kAsk, 7, id, seconds(1), {0, 1, 2, 3, 4, 5}, {}, made},
                    kLookedAt)
        .code();
  };
  EXPECT_EQ(outcome(kMade, {0, 1}), ErrorCode::kProtocol);
  EXPECT_EQ(outcome(kMade, {1, 2, 6}), ErrorCode::kProtocol) << "6 is no member";
  EXPECT_EQ(outcome(kMade + 1, {0, 2}), ErrorCode::kProtocol) << "the number of no attempt";
}

}  // namespace
}  // namespace unisono::rendezvous
