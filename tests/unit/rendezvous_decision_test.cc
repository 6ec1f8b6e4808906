// Ranks as threads, after they have met: what every rank hears about failures.
#include <gmock/gmock.h>

#include <algorithm>

#include "rendezvous_support.h"

namespace unisono::rendezvous {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class Decisions : public testing::Test {
 protected:
  void SetUp() override {
    outcomes_ = meet(world_of(abstract_point(), 4));
    expect_one_world(outcomes_);
  }
  ArbiterClient* rank(int r) { return outcomes_[r].client.get(); }
  void TearDown() override { leave_all(&outcomes_); }
  std::vector<Outcome> outcomes_;
};

TEST_F(Decisions, RankThatVanishesIsNamedToAllOthers) {
  outcomes_[2].client.reset();
  for (const int survivor : {0, 1, 3}) {
    const FailureDecision decision = await_decision(rank(survivor));
    EXPECT_EQ(decision.code, ErrorCode::kRankFailed);
    EXPECT_EQ(decision.failed_rank, 2);
    EXPECT_EQ(decision.communicator, kEveryCommunicator);
    EXPECT_THAT(decision.message, HasSubstr("rank 2 (host testhost, pid "));
  }
}

TEST_F(Decisions, RankZeroThatVanishesIsNamedToo) {
  outcomes_[0].client.reset();
  for (const int survivor : {1, 2, 3}) EXPECT_EQ(await_decision(rank(survivor)).failed_rank, 0);
}

TEST_F(Decisions, LeavingInAnyOrderIsNoFailure) {
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
      EXPECT_EQ(await_decision(last).message, "echo");
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(Decisions, LeaveTwiceIsOnce) {
  rank(1)->leave();
  rank(1)->leave();
  rank(1)->report_failure({ErrorCode::kAborted, 1, 0, 0, "too late"});
  rank(2)->report_failure({ErrorCode::kAborted, -1, 0, 0, "in time"});
  EXPECT_EQ(await_decision(rank(3)).message, "in time");
}

TEST_F(Decisions, FirstFailureOfACommunicatorWinsEverywhere) {
  rank(1)->report_failure({ErrorCode::kMismatch, 1, 7, 3, "from 1"});
  rank(2)->report_failure({ErrorCode::kMismatch, 2, 7, 3, "from 2"});
  const std::string first = await_decision(rank(0)).message;
  for (const int r : {1, 2, 3}) EXPECT_EQ(await_decision(rank(r)).message, first);
  // Another communicator has its own first; nothing of 7 comes in between.
  rank(3)->report_failure({ErrorCode::kAborted, 3, 8, 1, "from 3"});
  for (const int r : {0, 1, 2, 3}) EXPECT_EQ(await_decision(rank(r)).message, "from 3");
}

TEST_F(Decisions, TimeoutListsWhoArrivedAndWhoDidNot) {
  rank(3)->report_waiting({5, 9, {2}});
  rank(0)->report_timeout({5, 9, {2, 3}, {0, 1, 2, 3}, "all_reduce"});
  rank(1)->report_timeout({5, 9, {0, 2}, {0, 1, 2, 3}, "all_reduce"});
  for (const int r : {0, 1, 2, 3}) {
    const FailureDecision decision = await_decision(rank(r));
    EXPECT_EQ(decision.code, ErrorCode::kTimeout);
    EXPECT_EQ(decision.failed_rank, 2);
    EXPECT_EQ(decision.communicator, 5u);
    EXPECT_EQ(decision.sequence, 9u);
    EXPECT_THAT(decision.message,
                StartsWith("all_reduce, timed out: rank 2 had not arrived, ranks 0, 1 and 3 had "
                           "(operation 9 of communicator 5, which has 4 ranks)"));
  }
}

TEST_F(Decisions, BrokenLinkToADeadRankNamesTheDead) {
  rank(1)->report_broken_link(2, Status(ErrorCode::kRankFailed, "connection reset"));
  outcomes_[2].client.reset();
  for (const int r : {0, 1, 3}) EXPECT_THAT(await_decision(rank(r)).message, HasSubstr("died"));
}

TEST_F(Decisions, BrokenLinkBetweenTheLivingNamesTheLink) {
  rank(1)->report_broken_link(2, Status(ErrorCode::kRankFailed, "connection reset"));
  for (const int r : {0, 1, 2, 3}) {
    EXPECT_THAT(await_decision(rank(r)).message,
                AllOf(HasSubstr("link between rank 1"), HasSubstr("connection reset")));
  }
}

}  // namespace
}  // namespace unisono::rendezvous
