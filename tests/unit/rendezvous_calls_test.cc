// Calls that differ: what is remembered of calls, whose call is found to be the odd one, and how
// the decider asks for them.
#include <gmock/gmock.h>

#include <set>

#include "base/call_history.h"
#include "rendezvous/failure/call_comparison.h"
#include "rendezvous/failure/failure_decider.h"
#include "rendezvous/messages/control_messages.h"

namespace unisono::rendezvous {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const TimePoint kFirstReport{seconds(1000)};
constexpr std::uint32_t kCommunicator = 7;

CallRecord broadcast_from(Rank root) {
  CallRecord record;
  record.collective = static_cast<std::uint8_t>(Collective::kBroadcast);
  record.root = root;
  record.count = 10;
  return record;
}

// Of world rank 10 + `member`.
CallsMessage calls_of(Rank member, std::vector<NumberedCall> calls) {
  const FailureDecision suspicion{ErrorCode::kMismatch, 11, kCommunicator, 0, "suspected"};
  return {kCommunicator, member, {10, 11, 12, 13, 14}, suspicion, std::move(calls)};
}

CallComparison compare(const std::vector<std::vector<NumberedCall>>& calls) {
  CallComparison comparison(10, calls_of(0, calls[0]), kFirstReport, kFirstReport);
  for (std::size_t i = 1; i < calls.size(); ++i) {
    const auto member = static_cast<Rank>(i);
    comparison.add(10 + member, calls_of(member, calls[i]));
  }
  return comparison;
}

TEST(CallHistory, KeepsTheLatestCallsByNumber) {
  CallHistory history;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(history.add(broadcast_from(i)), static_cast<unsigned>(i));
  EXPECT_EQ(history.next(), 100u);
  EXPECT_EQ(history.find(35), nullptr) << "forgotten";
  ASSERT_NE(history.find(36), nullptr);
  EXPECT_EQ(history.find(36)->root, 36);
  EXPECT_EQ(history.find(99)->root, 99);
  EXPECT_EQ(history.find(100), nullptr) << "not made yet";
  const std::vector<NumberedCall> latest = history.latest();
  ASSERT_THAT(latest, SizeIs(64));
  EXPECT_EQ(latest.front().sequence, 36u);
  EXPECT_EQ(latest.back().record.root, 99);
}

// As ranks do it: each record carries the digest of what came before.
std::uint32_t digest_after(const std::vector<Rank>& roots) {
  CallHistory history;
  for (const Rank root : roots) {
    CallRecord record = broadcast_from(root);
    record.history = history.digest();
    history.add(record);
  }
  return history.digest();
}

TEST(CallHistory, DigestTellsApartWhatWasCalledWhenAndHowOften) {
  EXPECT_EQ(digest_after({1, 2, 3}), digest_after({1, 2, 3}));
  EXPECT_NE(digest_after({1, 2, 3}), digest_after({2, 1, 3}));
  EXPECT_NE(digest_after({1, 2, 3}), digest_after({1, 2}));
  EXPECT_NE(digest_after({0, 0}), digest_after({0}));
  EXPECT_NE(digest_after({1, 2, 3}), digest_after({4, 2, 3})) << "however long ago";
}

TEST(CallComparison, NamesWhoDiffersFromTheMajority) {
  const CallRecord usual = broadcast_from(0), odd = broadcast_from(1);
  const FailureDecision decision = compare({{{5, odd}}, {{5, usual}}, {{5, usual}}}).judge(0);
  EXPECT_EQ(decision.code, ErrorCode::kMismatch);
  EXPECT_EQ(decision.failed_rank, 10) << "though it was the first to complain";
  EXPECT_EQ(decision.communicator, kCommunicator);
  EXPECT_EQ(decision.sequence, 5u);
  EXPECT_THAT(decision.message, AllOf(HasSubstr("rank 0 called broadcast(count 10, int8, root 1)"),
                                      HasSubstr("ranks 1 and 2 called broadcast(count 10, int8, "
                                                "root 0) (operation 5)")));
}

TEST(CallComparison, BetweenTwoTheLowerRankIsTakenToBeRight) {
  CallsMessage first = calls_of(0, {{5, broadcast_from(0)}});
  first.members = {10, 11};
  CallComparison comparison(10, std::move(first), kFirstReport, kFirstReport);
  comparison.add(11, calls_of(1, {{5, broadcast_from(1)}}));
  EXPECT_EQ(comparison.judge(0).failed_rank, 11);
}

TEST(CallComparison, NamesNobodyInADrawThatThoseWhoLeftWouldDecide) {
  EXPECT_EQ(compare({{{5, broadcast_from(0)}}, {{5, broadcast_from(1)}}}).judge(0).failed_rank, -1);
}

TEST(CallComparison, WaitsForTheCallOfAMemberThatIsBehind) {
  const CallRecord usual = broadcast_from(0), odd = broadcast_from(1);
  CallComparison comparison = compare({{{4, usual}, {5, odd}}, {{4, usual}, {5, usual}}, {}});
  comparison.add(12, calls_of(2, {{4, usual}}));
  EXPECT_FALSE(comparison.has_heard(12));
  EXPECT_EQ(comparison.judge(1).failed_rank, -1) << "it might agree with either";
  EXPECT_TRUE(comparison.take_asks_again(comparison.asks_at()));
  comparison.add(12, calls_of(2, {{4, usual}, {5, usual}}));
  comparison.add(12, calls_of(2, {{4, usual}}));  // has crossed it on its way
  EXPECT_TRUE(comparison.has_heard(12));
  EXPECT_EQ(comparison.judge(0).failed_rank, 10);
}

TEST(CallComparison, TheFirstDifferenceCounts) {
  const CallRecord usual = broadcast_from(0), odd = broadcast_from(1);
  const FailureDecision decision = compare({{{4, usual}, {5, usual}},
                                            {{4, odd}, {5, usual}},
                                            {{4, usual}, {5, odd}},
                                            {{3, usual}, {4, usual}}})
                                       .judge(0);
  EXPECT_EQ(decision.failed_rank, 11);
  EXPECT_EQ(decision.sequence, 4u);
}

TEST(CallComparison, SaysWhatNoRecordShows) {
  CallRecord later = broadcast_from(0), other = later;
  later.history = 1;
  EXPECT_THAT(compare({{{5, broadcast_from(0)}}, {{5, later}}}).judge(0).message,
              HasSubstr("after other calls"));
  other.details = 1;
  EXPECT_THAT(compare({{{5, broadcast_from(0)}}, {{5, other}}}).judge(0).message,
              HasSubstr("with other counts or operator"));
}

TEST(CallComparison, WithoutADifferenceBelievesTheReporter) {
  const FailureDecision decision =
      compare({{{5, broadcast_from(0)}}, {{5, broadcast_from(0)}}}).judge(0);
  EXPECT_EQ(decision.failed_rank, 11);
  EXPECT_EQ(decision.message, "suspected");
}

TEST(CallComparison, HearsEachMemberOnceAndNobodyElse) {
  CallComparison comparison(10, calls_of(0, {{5, broadcast_from(0)}}), kFirstReport, kFirstReport);
  comparison.add(10, calls_of(0, {{5, broadcast_from(1)}}));
  comparison.add(99, calls_of(4, {{5, broadcast_from(1)}}));
  EXPECT_FALSE(comparison.has_heard(99));
  EXPECT_EQ(comparison.judge(0).message, "suspected");
}

std::vector<Member> world_of(int size) {
  std::vector<Member> all(static_cast<std::size_t>(size));
  for (Rank rank = 0; rank < size; ++rank) all[static_cast<std::size_t>(rank)].rank = rank;
  return all;
}

CallsMessage calls_in_world(Rank rank, Rank root) {
  return {kCommunicator,
          rank,
          {0, 1, 2, 3},
          {ErrorCode::kMismatch, 1, kCommunicator, 0, "suspected"},
          {{5, broadcast_from(root)}}};
}

TEST(FailureDecider, AsksAllMembersForTheirCallsAndJudgesOnceAllHaveAnswered) {
  FailureDecider decider(world_of(5));
  decider.on_goodbye(3);
  decider.on_differing(0, calls_in_world(0, 0), kFirstReport);
  const auto asked = decider.take(kFirstReport);
  ASSERT_THAT(asked, SizeIs(2)) << "neither who has left nor who is no member";
  for (const auto& question : asked) {
    EXPECT_EQ(question.type, MessageType::kAskCalls);
    EXPECT_EQ(question.decision.communicator, kCommunicator);
  }
  EXPECT_EQ(asked[0].target, 1);
  EXPECT_EQ(asked[1].target, 2);
  decider.on_differing(1, calls_in_world(1, 1), kFirstReport);  // has found out by itself
  EXPECT_THAT(decider.take(kFirstReport), IsEmpty());
  const TimePoint again = decider.next_due();
  EXPECT_LT(again, kFirstReport + kCallsTime);
  const auto asked_again = decider.take(again);
  ASSERT_THAT(asked_again, SizeIs(1));
  EXPECT_EQ(asked_again[0].type, MessageType::kAskCalls);
  EXPECT_EQ(asked_again[0].target, 2);
  decider.on_calls(2, calls_in_world(2, 1));
  EXPECT_EQ(decider.next_due(), TimePoint::min());
  const auto said = decider.take(kFirstReport);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].type, MessageType::kDecision);
  EXPECT_EQ(said[0].target, -1);
  EXPECT_EQ(said[0].decision.failed_rank, 0);
  decider.on_differing(2, calls_in_world(2, 1), kFirstReport);
  EXPECT_THAT(decider.take(kFirstReport), IsEmpty()) << "the communicator has its decision";
  EXPECT_EQ(decider.next_due(), kNever);
}

TEST(FailureDecider, JudgesDifferingCallsWithoutThoseThatDoNotAnswer) {
  FailureDecider decider(world_of(4));
  decider.on_differing(0, calls_in_world(0, 0), kFirstReport);
  ASSERT_THAT(decider.take(kFirstReport), SizeIs(3));
  decider.on_calls(1, calls_in_world(1, 1));
  for (const auto& question : decider.take(kFirstReport + kCallsTime - Duration(1))) {
    EXPECT_EQ(question.type, MessageType::kAskCalls);
  }
  const auto said = decider.take(kFirstReport + kCallsTime);
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].decision.code, ErrorCode::kMismatch);
  EXPECT_EQ(said[0].decision.failed_rank, -1) << "ranks 2 and 3 may agree with either";
  EXPECT_THAT(said[0].decision.message, HasSubstr("rank 1 called"));
}

TEST(FailureDecider, NamesWhoDiffersFromMoreThanTheSilentCouldOutweigh) {
  FailureDecider decider(world_of(4));
  decider.on_differing(0, calls_in_world(0, 0), kFirstReport);
  decider.on_calls(1, calls_in_world(1, 1));
  decider.on_calls(2, calls_in_world(2, 1));
  decider.on_calls(3, calls_in_world(3, 1));
  const auto said = decider.take(kFirstReport);
  ASSERT_FALSE(said.empty());
  EXPECT_EQ(said.back().decision.failed_rank, 0);
  FailureDecider one_computes(world_of(5));
  CallsMessage all_five = calls_in_world(0, 0);
  all_five.members.push_back(4);
  one_computes.on_differing(0, all_five, kFirstReport);
  for (Rank rank = 1; rank <= 3; ++rank) one_computes.on_calls(rank, calls_in_world(rank, 1));
  EXPECT_EQ(one_computes.take(kFirstReport + kCallsTime).back().decision.failed_rank, 0);
}

TEST(FailureDecider, NamesNobodyOnASuspicionWhileOthersAreSilent) {
  FailureDecider decider(world_of(4));
  decider.on_differing(0, calls_in_world(0, 0), kFirstReport);
  const auto said = decider.take(kFirstReport + kCallsTime);
  ASSERT_FALSE(said.empty());
  EXPECT_EQ(said.back().decision.failed_rank, -1);
  EXPECT_EQ(said.back().decision.message, "suspected");
}

TEST(FailureDecider, ComparesCallsOfABoundedNumberOfCommunicatorsAtATime) {
  constexpr std::uint32_t kAtATime = 1024;
  FailureDecider decider(world_of(4));
  for (std::uint32_t id = 1; id <= kAtATime + 1; ++id) {
    CallsMessage differing = calls_in_world(0, 0);
    differing.communicator = differing.suspicion.communicator = id;
    decider.on_differing(0, std::move(differing), kFirstReport);
  }
  std::set<std::uint32_t> asked_about;
  for (const auto& said : decider.take(kFirstReport)) {
    EXPECT_EQ(said.type, MessageType::kAskCalls);
    asked_about.insert(said.decision.communicator);
  }
  ASSERT_THAT(asked_about, SizeIs(kAtATime));
  EXPECT_EQ(*asked_about.begin(), 1u);
  EXPECT_EQ(*asked_about.rbegin(), kAtATime) << "not about the last one";
}

TEST(FailureDecider, AnAnswerThatNobodyAskedForIsIgnored) {
  FailureDecider decider(world_of(4));
  decider.on_calls(1, calls_in_world(1, 1));
  EXPECT_EQ(decider.next_due(), kNever);
}

std::string_view without_head(const std::string& message) {
  return std::string_view(message).substr(5);  // behind length and type
}

TEST(ControlMessages, CallsRoundTrip) {
  CallsMessage sent = calls_in_world(2, 3);
  sent.calls[0].record.details = 0x12345678;
  sent.calls[0].record.history = 0x9abcdef0;
  sent.calls.push_back({std::uint64_t{1} << 40, broadcast_from(-1)});
  for (const MessageType type : {MessageType::kDiffering, MessageType::kCalls}) {
    const auto got = decode_calls(type, without_head(encode_calls(type, sent, 4)), 4);
    ASSERT_TRUE(got.has_value());
    EXPECT_EQ(got->communicator, kCommunicator);
    EXPECT_EQ(got->member, 2);
    EXPECT_THAT(got->members, ElementsAre(0, 1, 2, 3));
    ASSERT_THAT(got->calls, SizeIs(2));
    EXPECT_EQ(got->calls[0].record, sent.calls[0].record);
    EXPECT_EQ(got->calls[1].record, sent.calls[1].record);
    EXPECT_EQ(got->calls[1].sequence, std::uint64_t{1} << 40);
    EXPECT_EQ(got->suspicion.message, type == MessageType::kDiffering ? "suspected" : "");
  }
}

TEST(ControlMessages, MalformedCallsAreRefused) {
  const std::string whole = encode_calls(MessageType::kDiffering, calls_in_world(2, 3), 4);
  const std::string_view body = without_head(whole);
  for (std::size_t bytes = 0; bytes < body.size(); ++bytes) {
    EXPECT_FALSE(decode_calls(MessageType::kDiffering, body.substr(0, bytes), 4)) << bytes;
  }
  EXPECT_FALSE(decode_calls(MessageType::kDiffering, whole + "x", 4));
  CallsMessage sent = calls_in_world(4, 3);
  EXPECT_FALSE(decode_calls(MessageType::kCalls,
                            without_head(encode_calls(MessageType::kCalls, sent, 4)), 4))
      << "no rank of this world";
  sent = calls_in_world(2, 3);
  sent.suspicion.communicator = kCommunicator + 1;
  EXPECT_FALSE(decode_calls(MessageType::kDiffering,
                            without_head(encode_calls(MessageType::kDiffering, sent, 4)), 4))
      << "a suspicion about another communicator";
  sent = calls_in_world(2, 3);
  sent.suspicion.failed_rank = 4;
  EXPECT_FALSE(decode_calls(MessageType::kDiffering,
                            without_head(encode_calls(MessageType::kDiffering, sent, 4)), 4))
      << "a suspicion against no rank of this world";
  sent = calls_in_world(2, 3);
  sent.calls.assign(kCallsMax, sent.calls.front());
  std::string full = encode_calls(MessageType::kCalls, sent, 4);
  EXPECT_TRUE(decode_calls(MessageType::kCalls, without_head(full), 4));
  const std::size_t call_bytes =
      (full.size() - encode_calls(MessageType::kCalls, calls_in_world(2, 3), 4).size()) /
      (kCallsMax - 1);
  full[full.size() - kCallsMax * call_bytes - 1] = static_cast<char>(kCallsMax + 1);
  full += full.substr(full.size() - call_bytes);
  EXPECT_FALSE(decode_calls(MessageType::kCalls, without_head(full), 4)) << "more than are allowed";
  sent = calls_in_world(2, 3);
  std::string many = encode_calls(MessageType::kCalls, sent, 4);
  many[many.size() - 33] = static_cast<char>(kCallsMax + 1);
  EXPECT_FALSE(decode_calls(MessageType::kCalls, without_head(many), 4))
      << "more calls than follow";
}

TEST(ControlMessages, AQuestionRoundTrips) {
  const std::string question = encode_question(kCommunicator);
  EXPECT_EQ(*decode_question(without_head(question)), kCommunicator);
  EXPECT_FALSE(decode_question(without_head(question).substr(1)));
}

}  // namespace
}  // namespace unisono::rendezvous
