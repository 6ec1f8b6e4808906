// Those inside the job who talk nonsense: an arbiter to its ranks, a rank to the arbiter. The
// others get a decision that names who it was.
#include <gmock/gmock.h>

#include <future>
#include <string>
#include <vector>

#include "rendezvous/messages/arbiter_connection.h"
#include "rendezvous/sockets/control_stream.h"
#include "rendezvous/sockets/sockets.h"
#include "rendezvous_support.h"

namespace unisono::rendezvous {
namespace {

using testing::HasSubstr;

std::string hostile_length() { return std::string(4, '\xff'); }

/// `message` as one of another type.
std::string retyped(std::string message, MessageType type) {
  message[4] = static_cast<char>(type);
  return message;
}

/// A rank that has met an arbiter of the test's making, and that arbiter.
struct Met {
  Result<std::unique_ptr<ArbiterClient>> client;
  ControlStream arbiter;
};

/// Rank 1 of `size`, to which the arbiter says this behind the members.
Met met(int size, const std::string& said) {
  const RendezvousPoint point = abstract_point();
  auto listener = listen_unix(point.name);
  EXPECT_TRUE(listener.has_value());
  auto joined = std::async(std::launch::async, [&] {
    return ArbiterClient::join(point, size, test_member(1), Clock::now() + kPatience);
  });
  ControlStream arbiter = accept_at(*listener);
  EXPECT_EQ(hear(&arbiter), MessageType::kJoin);
  std::vector<Member> members;
  for (Rank rank = 0; rank < size; ++rank) members.push_back(test_member(rank));
  say(&arbiter, encode(WelcomeMessage{size, "0123456789abcdef", JobKey::random().to_hex()}) +
                    encode_members(members) + said);
  return {joined.get(), std::move(arbiter)};
}

TEST(HostileArbiter, IsNamedToTheUser) {
  const std::string decision =
      encode(MessageType::kDecision, FailureDecision{ErrorCode::kRankFailed, 1, 0, 0, "it died"});
  for (const std::string& said :
       {hostile_length(), retyped(decision, MessageType::kMembers), encode(MessageType::kDecision),
        encode(MessageType::kDecision, FailureDecision{ErrorCode::kOk, 1}),
        encode(MessageType::kDecision, FailureDecision{ErrorCode::kRankFailed, 2})}) {
    const Met rank = met(2, said);
    ASSERT_TRUE(rank.client.has_value()) << rank.client.status().message();
    const FailureDecision got = await_decision(rank.client->get());
    EXPECT_EQ(got.failed_rank, 0);
    EXPECT_EQ(got.code, ErrorCode::kProtocol);
    EXPECT_THAT(got.message, HasSubstr("no arbiter sends"));
  }
}

// Nobody is left to ask who died.
TEST(Arbiter, AfterItsFarewellABrokenLinkIsTheReportersToJudge) {
  const Met rank = met(3, encode(MessageType::kFarewell));
  ASSERT_TRUE(rank.client.has_value()) << rank.client.status().message();
  EXPECT_TRUE(eventually([&] { return rank.client->get()->is_lost(); }));
  EXPECT_TRUE(rank.client->get()->take_news().decisions.empty());
  (*rank.client)->report_broken_link(2, Status(ErrorCode::kRankFailed, "connection reset"));
  const FailureDecision got = await_decision(rank.client->get());
  EXPECT_EQ(got.failed_rank, 2);
  EXPECT_EQ(got.code, ErrorCode::kRankFailed);
}

TEST(HostileRank, IsNamedToTheOthers) {
  const std::string wait = encode_wait(MessageType::kWaiting, {0, 1, {0}, {}}, 2);
  const std::string too_wide = encode_wait(MessageType::kWaiting, {0, 1, {30}, {}}, 31);
  const std::vector<std::string> nonsense{
      hostile_length(),
      retyped(wait, MessageType::kMembers),
      retyped(wait, static_cast<MessageType>(200)),
      too_wide,
      retyped(too_wide, MessageType::kTimedOut),
      encode(MessageType::kFailure),
      encode(MessageType::kFailure, FailureDecision{ErrorCode::kRankFailed, 2}),
      encode(BrokenLinkMessage{2, "no such rank"})};
  for (const std::string& said : nonsense) {
    EXPECT_EQ(decision_when_rank_one_says(said).failed_rank, 1);
  }
}

// It loses its seat; the rendezvous goes on without the nonsense.
TEST(HostileRank, ThatSpeaksBeforeItsTurnCanComeAgain) {
  const RendezvousPoint point = abstract_point();
  auto candidates = world_of(point, 3);
  auto first = std::async(std::launch::async, [&] { return meet({candidates[0]}); });
  ControlStream rank = rank_at(point, 1, 3);
  say(&rank, encode_wait(MessageType::kWaiting, {0, 1, {0}, {}}, 3));
  EXPECT_EQ(hear(&rank), std::nullopt);
  auto others = meet({candidates[1], candidates[2]});
  auto outcomes = first.get();
  for (Outcome& outcome : others) outcomes.push_back(std::move(outcome));
  expect_one_world(outcomes);
  leave_all(&outcomes);
}

}  // namespace
}  // namespace unisono::rendezvous
