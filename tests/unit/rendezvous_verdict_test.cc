// Ranks as threads, after they have met: what every rank hears about failures.
#include <gmock/gmock.h>

#include <algorithm>

#include "rendezvous_support.h"

namespace unisono::rendezvous {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Verdicts : public testing::Test {
 protected:
  void SetUp() override {
    outcomes_ = meet(world_of(abstract_point(), 4));
    expect_one_world(outcomes_);
  }
  ArbiterClient* rank(int r) { return outcomes_[r].client.get(); }
  void TearDown() override { leave_all(&outcomes_); }
  std::vector<Outcome> outcomes_;
};

TEST_F(Verdicts, RankThatVanishesIsNamedToAllOthers) {
  outcomes_[2].client.reset();
  for (const int survivor : {0, 1, 3}) {
    const Verdict verdict = await_verdict(rank(survivor));
    EXPECT_EQ(verdict.code, ErrorCode::kRankFailed);
    EXPECT_EQ(verdict.culprit, 2);
    EXPECT_EQ(verdict.communicator, kEveryCommunicator);
    EXPECT_THAT(verdict.message, HasSubstr("rank 2 (host testhost, pid "));
  }
}

TEST_F(Verdicts, RankZeroThatVanishesIsNamedToo) {
  outcomes_[0].client.reset();
  for (const int survivor : {1, 2, 3}) EXPECT_EQ(await_verdict(rank(survivor)).culprit, 0);
}

TEST_F(Verdicts, LeavingInAnyOrderIsNoFailure) {
  std::vector<int> order = {0, 1, 2, 3};
  do {
    auto outcomes = meet(world_of(abstract_point(), 4));
    expect_one_world(outcomes);
    for (std::size_t gone = 0; gone < order.size(); ++gone) {
      outcomes[static_cast<std::size_t>(order[gone])].client->leave();
      if (gone + 1 == order.size()) break;
      // A word through the arbiter and back: it has handled everything before.
      ArbiterClient* const last = outcomes[static_cast<std::size_t>(order.back())].client.get();
      const auto communicator = static_cast<std::uint32_t>(gone);
      last->report_failure({ErrorCode::kAborted, -1, communicator, 0, "echo"});
      EXPECT_EQ(await_verdict(last).message, "echo");
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(Verdicts, LeaveTwiceIsOnce) {
  rank(1)->leave();
  rank(1)->leave();
  rank(1)->report_failure({ErrorCode::kAborted, 1, 0, 0, "too late"});
  rank(2)->report_failure({ErrorCode::kAborted, -1, 0, 0, "in time"});
  EXPECT_EQ(await_verdict(rank(3)).message, "in time");
}

TEST_F(Verdicts, FirstFailureOfACommunicatorWinsEverywhere) {
  rank(1)->report_failure({ErrorCode::kMismatch, 1, 7, 3, "from 1"});
  rank(2)->report_failure({ErrorCode::kMismatch, 2, 7, 3, "from 2"});
  const std::string first = await_verdict(rank(0)).message;
  for (const int r : {1, 2, 3}) EXPECT_EQ(await_verdict(rank(r)).message, first);
  // Another communicator has its own first; nothing of 7 comes in between.
  rank(3)->report_failure({ErrorCode::kAborted, 3, 8, 1, "from 3"});
  for (const int r : {0, 1, 2, 3}) EXPECT_EQ(await_verdict(rank(r)).message, "from 3");
}

TEST_F(Verdicts, TimeoutListsWhoArrivedAndWhoDidNot) {
  rank(3)->report_waiting(5, 9, {2});
  rank(0)->report_timeout(5, 9, {2, 3}, {0, 1, 2, 3});
  rank(1)->report_timeout(5, 9, {0, 2}, {0, 1, 2, 3});
  for (const int r : {0, 1, 2, 3}) {
    const Verdict verdict = await_verdict(rank(r));
    EXPECT_EQ(verdict.code, ErrorCode::kTimeout);
    EXPECT_EQ(verdict.culprit, 2);
    EXPECT_EQ(verdict.communicator, 5u);
    EXPECT_EQ(verdict.sequence, 9u);
    EXPECT_THAT(verdict.message, AllOf(HasSubstr("rank 2 had not arrived"),
                                       HasSubstr("ranks 0, 1 and 3 had of 4 members")));
  }
}

TEST_F(Verdicts, BrokenLinkToADeadRankNamesTheDead) {
  rank(1)->report_broken_link(2, "connection reset");
  outcomes_[2].client.reset();
  for (const int r : {0, 1, 3}) EXPECT_THAT(await_verdict(rank(r)).message, HasSubstr("died"));
}

TEST_F(Verdicts, BrokenLinkBetweenTheLivingNamesTheLink) {
  rank(1)->report_broken_link(2, "connection reset");
  for (const int r : {0, 1, 2, 3}) {
    EXPECT_THAT(await_verdict(rank(r)).message,
                AllOf(HasSubstr("link between rank 1"), HasSubstr("connection reset")));
  }
}

}  // namespace
}  // namespace unisono::rendezvous
