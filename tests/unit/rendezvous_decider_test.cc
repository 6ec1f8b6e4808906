// Who is blamed: FailureDecider with time as an argument.
#include <gmock/gmock.h>

#include <functional>

#include "base/communicator_id.h"
#include "rendezvous/failure/failure_decider.h"
#include "rendezvous/messages/rank_text.h"
#include "rendezvous_apart.h"

namespace unisono::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const TimePoint kStart{seconds(1000)};

using Said = std::vector<FailureDecider::Outgoing>;

Said decisions_of(Said said) {
  std::erase_if(said, [](const auto& each) { return each.type != MessageType::kDecision; });
  return said;
}

/// Who is asked for its waits.
std::vector<Rank> asked_in(const Said& said) {
  std::vector<Rank> asked;
  for (const FailureDecider::Outgoing& each : said) {
    if (each.type == MessageType::kAskWaits) asked.push_back(each.target);
  }
  return asked;
}

std::vector<Member> members(int size) {
  std::vector<Member> all;
  for (Rank rank = 0; rank < size; ++rank) all.push_back(member_of_rank(rank));
  return all;
}

TEST(RankText, ListsRanksAsPeopleDo) {
  EXPECT_EQ(ranks_text({}), "no rank");
  EXPECT_EQ(ranks_text({2}), "rank 2");
  EXPECT_EQ(ranks_text({2, 5}), "ranks 2 and 5");
  EXPECT_EQ(ranks_text({2, 5, 7}), "ranks 2, 5 and 7");
  EXPECT_THAT(ranks_text(std::vector<Rank>(100, 1)), HasSubstr(" and 84 more"));
  EXPECT_EQ(duration_text(seconds(30)), "30 s");
  EXPECT_EQ(duration_text(milliseconds(1500)), "1.5 s");
  EXPECT_EQ(duration_text(milliseconds(999'960)), "1000 s");
  EXPECT_EQ(duration_text(milliseconds(10'800'499)), "10800 s");
  EXPECT_EQ(duration_text(milliseconds(250)), "250 ms");
}

TEST(FailureDecider, DeathIsToldToAllAtOnce) {
  FailureDecider decider(members(4));
  decider.on_closed(2, "closed without goodbye");
  const auto said = decider.take(kStart);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].target, -1);
  EXPECT_EQ(said[0].decision.code, ErrorCode::kRankFailed);
  EXPECT_EQ(said[0].decision.failed_rank, 2);
  EXPECT_EQ(said[0].decision.communicator, kEveryCommunicator);
  EXPECT_THAT(said[0].decision.message, HasSubstr("rank 2 (host node2, pid 102) died"));
}

TEST(FailureDecider, LeavingIsNoFailure) {
  FailureDecider decider(members(4));
  decider.on_goodbye(2);
  decider.on_closed(2, "closed");
  EXPECT_THAT(decider.take(kStart), IsEmpty());
}

// Its word is about itself: the others reach each other.
TEST(FailureDecider, OfABrokenLinkTheEndThatDoesNotHearTheArbiterIsAtFault) {
  for (const bool is_deaf : {true, false}) {
    FailureDecider decider(members(4));
    if (is_deaf) decider.note_deaf({2});
    decider.on_broken_link(2, {0, "reset", ErrorCode::kRankFailed}, kStart);
    const auto said = decisions_of(decider.take(kStart + kLinkGraceTime));
    ASSERT_THAT(said, SizeIs(1));
    EXPECT_EQ(said[0].decision.failed_rank, is_deaf ? 2 : 0);
    EXPECT_EQ(said[0].decision.message.find("does not hear the arbiter") != std::string::npos,
              is_deaf);
  }
}

TEST(FailureDecider, WhoSendsNonsenseIsAtFaultWhateverTheOtherEndHears) {
  FailureDecider decider(members(4));
  decider.note_deaf({2});
  decider.on_broken_link(2, {0, "a frame of 2^60 bytes", ErrorCode::kProtocol}, kStart);
  const auto said = decisions_of(decider.take(kStart + kLinkGraceTime));
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].decision.failed_rank, 0);
  EXPECT_EQ(said[0].decision.code, ErrorCode::kProtocol);
}

TEST(FailureDecider, TimeoutGathersReportsAndNamesWhoDidNotArrive) {
  FailureDecider decider(members(4));
  decider.on_timed_out(0, {5, 9, {1, 2, 3}, {0, 1, 2, 3}}, kStart);
  EXPECT_THAT(decisions_of(decider.take(kStart)), IsEmpty());
  EXPECT_EQ(decider.next_due(), kStart + kGatherTime);
  decider.on_timed_out(3, {5, 9, {0, 2}, {0, 1, 2, 3}}, kStart + milliseconds(50));
  decider.on_waiting(1, {5, 9, {2}, {}});
  const auto said = decisions_of(decider.take(kStart + kGatherTime));
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].decision.code, ErrorCode::kTimeout);
  EXPECT_EQ(said[0].decision.failed_rank, 2);
  EXPECT_EQ(said[0].decision.communicator, 5u);
  EXPECT_EQ(said[0].decision.sequence, 9u);
  EXPECT_THAT(said[0].decision.message,
              AllOf(HasSubstr("rank 2 had not arrived"), HasSubstr("ranks 0, 1 and 3 had"),
                    HasSubstr("rank 2 (host node2, pid 102) is alive and does not answer")));
  EXPECT_EQ(decider.next_due(), kNever);
}

TEST(FailureDecider, OfAPassedDeadlineSaysWhoseRanksItNames) {
  for (const std::uint64_t operation : {std::uint64_t{9}, kPointToPointSequence}) {
    for (const std::uint32_t communicator : {kWorldId, 5u}) {
      FailureDecider decider(members(4));
      decider.on_timed_out(0, {communicator, operation, {3}, {0, 3}}, kStart);
      const auto said = decisions_of(decider.take(kStart + kGatherTime));
      ASSERT_THAT(said, SizeIs(1));
      EXPECT_EQ(said[0].decision.message.ends_with(" (ranks as the job numbers them)"),
                communicator == 5u)
          << said[0].decision.message;
    }
  }
}

// Whoever held them up came before it was said, or before somebody else.
TEST(FailureDecider, NoTimeoutIsToldWhereAllHaveDoneMeanwhile) {
  for (const bool all_have : {true, false}) {
    FailureDecider decider(members(4));
    for (const Rank rank : {0, 1, 2}) {
      decider.on_timed_out(rank, {5, 9, {3}, {0, 1, 2, 3}}, kStart);
    }
    for (const Rank rank : {0, 1}) decider.on_ended_well(rank, {5, 9, {}, {}});
    if (all_have) decider.on_ended_well(2, {5, 9, {}, {}});
    const auto said = decisions_of(decider.take(kStart + kGatherTime));
    EXPECT_EQ(decider.next_due(), kNever);
    ASSERT_THAT(said, SizeIs(all_have ? 0 : 1));
    if (all_have) continue;
    EXPECT_THAT(said[0].decision.message,
                AllOf(HasSubstr("rank 3 had not arrived"), HasSubstr("ranks 0, 1 and 2 had")));
  }
}

TEST(FailureDecider, WhoHasEndedACallHasNotFailedToArriveInIt) {
  FailureDecider decider(members(3));
  decider.on_timed_out(1, {5, 9, {0}, {0, 1, 2}}, kStart);
  decider.on_ended_well(1, {5, 9, {}, {}});
  EXPECT_THAT(decisions_of(decider.take(kStart + kGatherTime)), IsEmpty());
  const TimePoint later = kStart + 2 * kGatherTime;
  decider.on_timed_out(2, {5, 9, {0, 1}, {0, 1, 2}}, later);
  static_cast<void>(decider.take(later));
  decider.on_waits(1, {{}, true}, later);
  const auto said = decisions_of(decider.take(later + kGatherTime));
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].decision.failed_rank, 0);
  EXPECT_THAT(said[0].decision.message, HasSubstr("rank 0 had not arrived, ranks 1 and 2 had"));
}

// A receive from any rank names nobody, and is another call than the send that is late.
TEST(FailureDecider, WhoWaitsForNobodyHasNotEnded) {
  for (const std::uint64_t operation : {kPointToPointSequence, std::uint64_t{7}}) {
    FailureDecider decider(members(4));
    decider.on_timed_out(0, {1, operation, {2}, {0, 1, 2, 3}, "send to rank 2"}, kStart);
    decider.on_waiting(0, {1, operation, {}, {}});
    EXPECT_THAT(decisions_of(decider.take(kStart + kGatherTime)), SizeIs(1));
  }
}

TEST(FailureDecider, OfADeadlineOfOneThatHasLeftNothingIsTold) {
  FailureDecider decider(members(4));
  decider.on_timed_out(0, {1, 7, {2}, {0, 1, 2, 3}}, kStart);
  decider.on_goodbye(0);
  EXPECT_THAT(decisions_of(decider.take(kStart + kGatherTime)), IsEmpty());
  EXPECT_EQ(decider.next_due(), kNever);
}

// Rank 1 has arrived and done, and says so when it is asked; rank 2 has yet to hear it.
TEST(FailureDecider, NobodyHasNotArrivedWhoseDeadlinePassedThere) {
  FailureDecider decider(members(3));
  decider.on_timed_out(1, {5, 9, {0}, {0, 1, 2}}, kStart);
  decider.on_timed_out(2, {5, 9, {0, 1}, {0, 1, 2}}, kStart);
  decider.take(kStart);
  decider.on_waits(1, {{}, true}, kStart + milliseconds(1));
  const auto said = decisions_of(decider.take(kStart + kGatherTime));
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].decision.failed_rank, 0);
  EXPECT_THAT(said[0].decision.message,
              AllOf(HasSubstr("rank 0 had not arrived"), HasSubstr("ranks 1 and 2 had")));
}

TEST(FailureDecider, TimeoutTellsWhereTheMissingWait) {
  FailureDecider decider(members(3));
  decider.on_waiting(2, {5, 8, {1}, {}});
  decider.on_timed_out(0, {5, 9, {1, 2}, {0, 1, 2}}, kStart);
  const auto said = decisions_of(decider.take(kStart + kGatherTime));
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].decision.failed_rank, -1);
  EXPECT_THAT(said[0].decision.message, AllOf(HasSubstr("ranks 1 and 2 had not"),
                                              HasSubstr("waits in operation 8 for rank 1")));
}

// Rank 0 waits for rank 2 in communicator 1, and that in communicator 3 for rank 3.
class ChainOfWaits : public testing::Test {
 protected:
  FailureDecision decision(const std::vector<Rank>& members_of_first) {
    decider_.on_timed_out(0, {1, 7, {2}, members_of_first}, kStart);
    EXPECT_THAT(asked_in(decider_.take(kStart)), ElementsAre(2));
    decider_.on_waits(2, {{{3, 5, {3}, {}}}}, kStart + milliseconds(1));
    EXPECT_THAT(asked_in(decider_.take(kStart + milliseconds(1))), ElementsAre(3));
    answer();
    Said said = decisions_of(decider_.take(kStart + kGatherTime));
    EXPECT_THAT(said, SizeIs(1));
    return said.at(0).decision;
  }

  FailureDecider decider_{members(6)};
  std::function<void()> answer = [] {};  // what comes before the decision is due
};

TEST_F(ChainOfWaits, IsFollowedToTheRankThatDoesNotAnswer) {
  const FailureDecision said = decision({0, 1, 2, 3});
  EXPECT_EQ(said.failed_rank, 3);
  EXPECT_THAT(said.message,
              AllOf(HasSubstr("rank 2 had not arrived"),
                    HasSubstr("pid 102) waits in operation 5 of communicator 3 for rank 3"),
                    HasSubstr("pid 103) is alive and does not answer")));
}

TEST_F(ChainOfWaits, IsFollowedToTheRankThatWaitsForNobody) {
  answer = [&] { decider_.on_waits(3, {}, kStart + milliseconds(2)); };
  const FailureDecision said = decision({0, 1, 2, 3});
  EXPECT_EQ(said.failed_rank, 3);
  EXPECT_THAT(said.message, HasSubstr("pid 103) is alive and waits for nobody"));
}

TEST_F(ChainOfWaits, ThatLeavesTheCommunicatorNamesNoMemberOfIt) {
  const FailureDecision said = decision({0, 2});
  EXPECT_EQ(said.failed_rank, 3);
  EXPECT_THAT(said.message, HasSubstr("pid 103) is alive and does not answer"));
}

TEST_F(ChainOfWaits, ThatHasSeveralEndsNamesNobody) {
  answer = [&] { decider_.on_waits(3, {{{4, 1, {4, 5}, {}}}}, kStart + milliseconds(2)); };
  EXPECT_EQ(decision({0, 1, 2, 3, 4, 5}).failed_rank, -1);
}

TEST_F(ChainOfWaits, ThatIsACircleNamesWhoHadNotArrived) {
  answer = [&] {
    decider_.on_waits(3, {{{4, 1, {2, 0}, {}}}}, kStart + milliseconds(2));
    EXPECT_THAT(asked_in(decider_.take(kStart + milliseconds(2))), ElementsAre(0));
    decider_.on_waits(0, {{{1, 7, {2}, {}}}}, kStart + milliseconds(3));
  };
  EXPECT_EQ(decision({0, 1, 2, 3}).failed_rank, 2);
}

// Rank 0 has said whom it waits for as its deadline passed, and its answer comes too late.
TEST_F(ChainOfWaits, ThatComesBackToTheLateRankIsACircleThoughThatDoesNotAnswer) {
  decider_.on_waiting(0, {9, 1, {5}, {}});  // of which nobody has said that it is over
  answer = [&] { decider_.on_waits(3, {{{4, 1, {0}, {}}}}, kStart + milliseconds(2)); };
  EXPECT_EQ(decision({0, 1, 2, 3}).failed_rank, 2);
}

TEST(FailureDecider, OfAMessageNamesWhoHoldsUpThePeer) {
  FailureDecider decider(members(4));
  decider.on_waiting(3, {1, kPointToPointSequence, {1}, {}});  // of another message
  decider.on_timed_out(0, {1, kPointToPointSequence, {2}, {0, 1, 2, 3}, "receive from rank 2"},
                       kStart);
  decider.on_waits(2, {{{1, 4, {1}, {}}}}, kStart);
  const auto said = decisions_of(decider.take(kStart + kGatherTime));
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].decision.code, ErrorCode::kTimeout);
  EXPECT_EQ(said[0].decision.failed_rank, 1);
  EXPECT_THAT(said[0].decision.message,
              AllOf(HasSubstr("receive from rank 2 did not finish on rank 0 within its deadline"),
                    HasSubstr("waiting for rank 2; rank 2 "),
                    HasSubstr("waits in operation 4 for rank 1; rank 1 ")));
}

TEST(FailureDecider, OfAReportThatMayBeOverNoChainIsMade) {
  FailureDecider decider(members(4));
  decider.on_waiting(2, {3, 5, {3}, {}});
  decider.on_waits(2, {{{3, 6, {3}, {}}}}, kStart);  // nobody has asked
  decider.on_timed_out(0, {1, 7, {2}, {0, 1, 2, 3}}, kStart);
  const auto said = decisions_of(decider.take(kStart + kGatherTime));
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].decision.failed_rank, 2);
}

TEST(FailureDecider, AsksAgainForWhatMayHaveChanged) {
  FailureDecider decider(members(4));
  decider.on_timed_out(0, {1, 7, {2}, {0, 1, 2, 3}}, kStart);
  decider.on_timed_out(1, {1, 7, {2, 3}, {0, 1, 2, 3}}, kStart + milliseconds(1));
  EXPECT_THAT(asked_in(decider.take(kStart)), ElementsAre(2, 3)) << "each once";
  decider.on_waits(2, {{{3, 5, {3}, {}}}}, kStart + milliseconds(2));
  static_cast<void>(decider.take(kStart + kGatherTime));
  decider.on_timed_out(0, {2, 1, {2}, {0, 1, 2, 3}}, kStart + seconds(10));
  EXPECT_THAT(asked_in(decider.take(kStart + seconds(10))), ElementsAre(2));
  const auto said = decisions_of(decider.take(kStart + seconds(10) + kGatherTime));
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].decision.failed_rank, 2) << "the old answer does not count";
}

TEST(FailureDecider, EachOfSeveralOutstandingOperationsIsJudgedByItsOwnReports) {
  FailureDecider decider(members(3));
  for (const Rank rank : {0, 1}) {
    for (const std::uint64_t sequence : {5, 6, 7}) decider.on_waiting(rank, {3, sequence, {2}, {}});
  }
  decider.on_timed_out(0, {3, 5, {1, 2}, {0, 1, 2}}, kStart);
  const auto said = decisions_of(decider.take(kStart + kGatherTime));
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].decision.failed_rank, 2);
  EXPECT_EQ(said[0].decision.sequence, 5u);
  EXPECT_THAT(said[0].decision.message,
              AllOf(HasSubstr("rank 2 had not arrived"), HasSubstr("ranks 0 and 1 had")));
}

TEST(FailureDecider, AWaitInALaterOperationProvesArrivalOnlyInItsCommunicator) {
  FailureDecider decider(members(4));
  decider.on_waiting(1, {3, 9, {0}, {}});
  decider.on_waiting(2, {4, 9, {0}, {}});
  decider.on_waiting(3, {3, kPointToPointSequence, {0}, {}});
  decider.on_timed_out(0, {3, 5, {1, 2, 3}, {0, 1, 2, 3}}, kStart);
  const auto said = decisions_of(decider.take(kStart + kGatherTime));
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_THAT(said[0].decision.message,
              AllOf(HasSubstr("ranks 2 and 3 had not arrived"), HasSubstr("ranks 0 and 1 had")));
}

TEST(FailureDecider, WaitsInTwoCommunicatorsAreKeptApart) {
  FailureDecider decider(members(3));
  for (const Rank rank : {0, 1}) {
    decider.on_waiting(rank, {3, 5, {2}, {}});
    decider.on_waiting(rank, {4, 1, {1 - rank}, {}});
  }
  decider.on_timed_out(0, {3, 5, {2}, {0, 1, 2}}, kStart);
  decider.on_timed_out(1, {4, 1, {0}, {0, 1}}, kStart);
  const auto said = decisions_of(decider.take(kStart + kGatherTime));
  ASSERT_THAT(said, SizeIs(2));
  EXPECT_EQ(said[0].decision.communicator, 3u);
  EXPECT_EQ(said[0].decision.failed_rank, 2);
  EXPECT_EQ(said[1].decision.communicator, 4u);
  EXPECT_EQ(said[1].decision.failed_rank, -1);
  EXPECT_THAT(said[1].decision.message, HasSubstr("although all that were waited for had arrived"));
}

TEST(FailureDecider, ForgetsTheOldestOfTooManyReports) {
  FailureDecider decider(members(3));
  decider.on_waiting(0, {3, 0, {1}, {}});
  for (std::uint64_t sequence = 1; sequence <= 1000; ++sequence) {
    decider.on_waiting(0, {3, sequence, {2}, {}});
  }
  decider.on_goodbye(1);
  EXPECT_THAT(decider.take(kStart), IsEmpty());
  decider.on_goodbye(2);
  EXPECT_THAT(decider.take(kStart), SizeIs(1));
}

TEST(FailureDecider, TimeoutWithoutMissingRanksSaysSo) {
  FailureDecider decider(members(2));
  decider.on_timed_out(0, {5, 9, {1}, {0, 1}}, kStart);
  decider.on_timed_out(1, {5, 9, {0}, {0, 1}}, kStart);
  const auto said = decisions_of(decider.take(kStart + kGatherTime));
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].decision.failed_rank, -1);
  EXPECT_THAT(said[0].decision.message, HasSubstr("although all that were waited for had arrived"));
}

TEST(FailureDecider, FirstFailureOfACommunicatorWins) {
  FailureDecider decider(members(4));
  decider.on_failure({ErrorCode::kMismatch, 1, 7, 3, "first"});
  decider.on_failure({ErrorCode::kAborted, 2, 7, 4, "second"});
  decider.on_failure({ErrorCode::kAborted, 2, 8, 1, "elsewhere"});
  const auto said = decider.take(kStart);
  ASSERT_THAT(said, SizeIs(2));
  EXPECT_EQ(said[0].decision.message, "first");
  EXPECT_EQ(said[1].decision.message, "elsewhere");
}

TEST(FailureDecider, BrokenLinkWaitsForTheDeathThatExplainsIt) {
  FailureDecider decider(members(4));
  decider.on_broken_link(1, {2, "connection reset"}, kStart);
  EXPECT_THAT(decider.take(kStart + milliseconds(299)), IsEmpty());
  decider.on_closed(2, "closed without goodbye");
  const auto said = decider.take(kStart + milliseconds(299));
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_THAT(said[0].decision.message, HasSubstr("died"));
  EXPECT_THAT(decider.take(kStart + seconds(1)), IsEmpty());
}

TEST(FailureDecider, NeighbourOfTheVictimIsNotBlamed) {
  FailureDecider decider(members(4));
  // Rank 2 dies; its neighbours report both the broken link to it and each other's.
  decider.on_broken_link(1, {2, "reset"}, kStart);
  decider.on_broken_link(3, {2, "reset"}, kStart);
  decider.on_closed(2, "closed without goodbye");
  const auto said = decider.take(kStart + seconds(1));
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].decision.failed_rank, 2);
}

// Who computes or is stopped sees a broken link late.
TEST(FailureDecider, OfABrokenLinkOneEndIsBlamedHoweverLateTheOtherComplains) {
  FailureDecider decider(members(4));
  decider.on_broken_link(2, {1, "connection reset"}, kStart);
  EXPECT_THAT(decider.take(kStart + kLinkGraceTime), SizeIs(1));
  decider.on_broken_link(1, {2, "connection reset"}, kStart + seconds(1));
  EXPECT_THAT(decider.take(kStart + seconds(1) + kLinkGraceTime), IsEmpty());
  EXPECT_EQ(decider.next_due(), kNever);
  decider.on_broken_link(1, {3, "connection reset"}, kStart + seconds(2));
  EXPECT_THAT(decider.take(kStart + seconds(2) + kLinkGraceTime), IsEmpty())
      << "rank 1 has failed already";
}

TEST(FailureDecider, BrokenLinkBetweenTheLivingNamesTheLinkOnce) {
  FailureDecider decider(members(4));
  decider.on_broken_link(1, {2, "connection reset"}, kStart);
  decider.on_broken_link(2, {1, "connection reset"}, kStart);
  const auto said = decider.take(kStart + kLinkGraceTime);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_THAT(said[0].decision.message,
              AllOf(HasSubstr("link between rank 1"), HasSubstr("rank 2"),
                    HasSubstr("both are alive"), HasSubstr("connection reset")));
}

// After the network between hosts was down, the goodbye of one that has left is sent again late.
TEST(FailureDecider, AwaitsAWordOfTheOtherEndBeforeItsLinkIsJudged) {
  FailureDecider decider(members(4));
  decider.on_broken_link(1, {2, "connection refused"}, kStart, true);
  const auto asked = decider.take(kStart);
  ASSERT_THAT(asked, SizeIs(1));
  EXPECT_EQ(asked[0].target, 2);
  EXPECT_EQ(asked[0].type, MessageType::kAskWord);
  EXPECT_EQ(decider.next_due(), kNever);
  const TimePoint heard = kStart + 2 * kLinkGraceTime;
  decider.on_heard(3, heard);
  EXPECT_THAT(decider.take(heard), IsEmpty());
  decider.on_heard(2, heard);
  EXPECT_THAT(decider.take(heard), IsEmpty()) << "older words may stand before its goodbye";
  EXPECT_EQ(decider.next_due(), heard + after_word_time(milliseconds(0)));
  decider.on_goodbye(2);
  auto said = decider.take(heard);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].target, 1);
  EXPECT_EQ(said[0].decision.code, ErrorCode::kRankLeft);

  decider.on_broken_link(1, {3, "connection reset"}, kStart, true);
  EXPECT_THAT(decider.take(kStart), SizeIs(1)) << "a question";
  decider.on_heard(3, kStart);
  said = decider.take(kStart + kLinkGraceTime);
  ASSERT_THAT(said, SizeIs(1)) << "it is here";
  EXPECT_EQ(said[0].decision.code, ErrorCode::kRankFailed);

  decider.on_broken_link(0, {1, "connection reset"}, kStart, true);
  EXPECT_THAT(decider.take(kStart), SizeIs(1)) << "a question";
  EXPECT_THAT(decider.take(kStart + std::chrono::hours(1)), IsEmpty()) << "it may be cut off";
  decider.condemn(1, "is silent");
  said = decider.take(kStart + std::chrono::hours(1));
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_THAT(said[0].decision.message, HasSubstr("is silent"));
}

// What is left of the silence once a dead link shows (unacknowledged_max()).
TEST(FailureDecider, JudgesALinkWhoseEndsLiveWithinATwentiethOfTheSilence) {
  for (const milliseconds silence : {milliseconds(200), milliseconds(1000), milliseconds(3000)}) {
    FailureDecider decider(members(4), silence);
    decider.on_broken_link(1, {2, "nothing is acknowledged"}, kStart, true);
    static_cast<void>(decider.take(kStart));
    decider.on_heard(2, kStart + silence / 60);
    EXPECT_THAT(decider.take(kStart + silence / 20 - milliseconds(1)), IsEmpty());
    EXPECT_THAT(decider.take(kStart + silence / 20), SizeIs(1)) << silence.count() << " ms";
  }
  EXPECT_EQ(link_grace_time(std::chrono::hours(1)), kLinkGraceTime);
}

TEST(FailureDecider, AsksARankForAWordOnceForAllItsLinks) {
  FailureDecider decider(members(4));
  decider.on_broken_link(1, {2, "nothing is acknowledged"}, kStart, true);
  decider.on_broken_link(3, {2, "nothing is acknowledged"}, kStart, true);
  EXPECT_THAT(decider.take(kStart), SizeIs(1));
}

TEST(FailureDecider, AwaitsNoWordOfWhoSentNonsense) {
  FailureDecider decider(members(4));
  decider.on_broken_link(1, {2, "a frame of 4 GiB", ErrorCode::kProtocol}, kStart, true);
  EXPECT_THAT(decider.take(kStart + kLinkGraceTime), SizeIs(1));
}

TEST(FailureDecider, WhoSentNonsenseIsNamedThoughItComplainedFirst) {
  FailureDecider decider(members(4));
  decider.on_broken_link(2, {1, "the peer closed the connection"}, kStart);
  decider.on_broken_link(1, {2, "a frame of 4 GiB", ErrorCode::kProtocol},
                         kStart + milliseconds(100));
  decider.on_broken_link(2, {1, "still"}, kStart + milliseconds(200));
  const auto said = decider.take(kStart + kLinkGraceTime);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].decision.code, ErrorCode::kProtocol);
  EXPECT_EQ(said[0].decision.failed_rank, 2);
  EXPECT_THAT(said[0].decision.message, HasSubstr("a frame of 4 GiB"));
}

TEST(FailureDecider, BytesThatChangedAreTheLinksAndNoNonsense) {
  FailureDecider decider(members(4));
  decider.on_broken_link(2, {1, "the peer closed the connection"}, kStart);
  decider.on_broken_link(1, {2, "two checksums", ErrorCode::kCorrupted},
                         kStart + milliseconds(100));
  const auto said = decider.take(kStart + kLinkGraceTime);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].decision.code, ErrorCode::kCorrupted);
  EXPECT_EQ(said[0].decision.failed_rank, 2);
  EXPECT_THAT(said[0].decision.message, AllOf(HasSubstr("link from rank 2"), HasSubstr("to rank 1"),
                                              HasSubstr("two checksums")));
}

TEST(FailureDecider, WhoLosesMoreLinksIsNamedWhoeverComplainsFirst) {
  for (const ErrorCode code :
       {ErrorCode::kRankFailed, ErrorCode::kProtocol, ErrorCode::kCorrupted}) {
    FailureDecider decider(members(4));
    // Rank 3's network is down, or it takes sound frames for nonsense.
    decider.on_broken_link(3, {0, "nothing is acknowledged", code}, kStart);
    decider.on_broken_link(3, {1, "nothing is acknowledged", code}, kStart);
    decider.on_broken_link(2, {3, "connection reset"}, kStart);
    const auto said = decider.take(kStart + kLinkGraceTime);
    ASSERT_THAT(said, SizeIs(1)) << "once for all its links";
    EXPECT_EQ(said[0].decision.failed_rank, 3);
  }
}

TEST(FailureDecider, LinkToARankThatLeftIsToldToTheReporterAlone) {
  FailureDecider decider(members(4));
  decider.on_broken_link(1, {2, "end of stream"}, kStart);
  decider.on_goodbye(2);
  const auto said = decider.take(kStart + milliseconds(1));
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].target, 1);
  EXPECT_EQ(said[0].decision.code, ErrorCode::kRankLeft);
}

TEST(FailureDecider, WhatARankSentWrongBeforeItLeftIsToldToAll) {
  for (const bool leaves_first : {false, true}) {
    for (const ErrorCode code : {ErrorCode::kProtocol, ErrorCode::kCorrupted}) {
      FailureDecider decider(members(4));
      if (leaves_first) decider.on_goodbye(2);
      decider.on_broken_link(1, {2, "two checksums", code}, kStart);
      decider.on_goodbye(2);
      const auto said = decider.take(kStart + milliseconds(1));
      ASSERT_THAT(said, SizeIs(1));
      EXPECT_EQ(said[0].target, -1);
      EXPECT_EQ(said[0].decision.code, code);
      EXPECT_EQ(said[0].decision.failed_rank, 2);
      EXPECT_THAT(said[0].decision.message, HasSubstr("two checksums"));
      EXPECT_EQ(decider.next_due(), kNever);
    }
  }
}

TEST(FailureDecider, NonsenseNamesItsSender) {
  FailureDecider decider(members(4));
  decider.on_broken_link(1, {1, ""}, kStart);
  const auto said = decider.take(kStart);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].decision.code, ErrorCode::kProtocol);
  EXPECT_EQ(said[0].decision.failed_rank, 1);
}

TEST(FailureDecider, ReportThatAliveRankFailedIsBroadcastAndOneAboutTheDeadIsNot) {
  FailureDecider decider(members(4));
  decider.on_closed(3, "closed without goodbye");
  ASSERT_THAT(decider.take(kStart), SizeIs(1));
  decider.on_failure({ErrorCode::kRankFailed, 3, kEveryCommunicator, 0, "late"});
  decider.on_failure({ErrorCode::kRankFailed, 3, 7, 0, "late, of one communicator"});
  EXPECT_THAT(decider.take(kStart), IsEmpty());
  decider.on_failure({ErrorCode::kRankFailed, 1, kEveryCommunicator, 0, "early"});
  EXPECT_THAT(decider.take(kStart), SizeIs(1));
}

}  // namespace
}  // namespace unisono::rendezvous
