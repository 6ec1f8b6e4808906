// Which part goes on where ranks do not hear each other: the rule alone, and with it the survivors
// of a communicator.
#include <gmock/gmock.h>

#include <map>

#include "rendezvous/quorum.h"
#include "rendezvous/shrink_agreements.h"

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
  bool hears(Rank rank, TimePoint) const override { return heard.contains(rank); }
  HostKey host_of(Rank rank) const override { return {"host", 0, rank / 2}; }
  bool may_have_another_arbiter(TimePoint) const override { return others_have_arbiter; }

  std::set<Rank> ended, heard;
  bool others_have_arbiter = true;
};

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
  const Parts parts = parts_of({0, 1, 2, 3, 4, 5, 6, 7}, {0, 2}, known, kLookedAt);
  EXPECT_THAT(parts.here, ElementsAre(0, 2, 4, 5));
  EXPECT_THAT(parts.elsewhere, IsEmpty());  // 1 and 3 are stopped
}

// Ranks 1 and 3 may hear an arbiter of 5 and 6, which those beside them do not.
TEST(Quorum, CountsThoseBesideASurvivorWhereOthersMayGoOn) {
  Known known;
  known.ended = {7};
  known.heard = {4};
  const Parts parts = parts_of({0, 1, 2, 3, 4, 5, 6, 7}, {0, 2}, known, kLookedAt);
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

// What those of four ranks hear that ask to go on without the others: the step, by rank.
std::map<Rank, ShrinkMessage> heard_by(const std::vector<Rank>& asking, const Known& known) {
  ShrinkAgreements agreements(4, 1, &known);
  for (Rank rank = 0; rank < 4; ++rank) {
    const bool asks = std::find(asking.begin(), asking.end(), rank) != asking.end();
    if (asks) {
      EXPECT_TRUE(agreements.on_message(
          rank, {ShrinkStep::kAsk, 7, 0, seconds(10), {0, 1, 2, 3}, {}}, kLookedAt));
    } else {
      agreements.on_decision({ErrorCode::kRankFailed, rank, kEveryCommunicator, 0, "silent"});
    }
  }
  std::map<Rank, ShrinkMessage> words;
  for (const auto& each : agreements.take(kLookedAt)) words[each.target] = each.message;
  return words;
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
  known.others_have_arbiter = false;
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

}  // namespace
}  // namespace unisono::rendezvous
