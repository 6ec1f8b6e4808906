// Ranks that go away, or cannot take part, before all have met: the others hear who and why long
// before their deadline, which is the test's patience.
#include <gmock/gmock.h>

#include <functional>
#include <future>
#include <vector>

#include "base/grace_periods.h"
#include "rendezvous/messages/control_messages.h"
#include "rendezvous/sessions/rendezvous.h"
#include "rendezvous/sockets/sockets.h"
#include "rendezvous_support.h"

namespace unisono::rendezvous {
namespace {

using testing::HasSubstr;

// The last one never comes, so that all have not met whoever is quicker.
constexpr int kWorld = 4;

std::vector<Candidate> others_than(Rank away, const RendezvousPoint& point) {
  auto candidates = world_of(point, kWorld);
  candidates.pop_back();
  candidates.erase(candidates.begin() + away);
  return candidates;
}

// What the others are told while rank `away` does what it does with its seat.
std::vector<Outcome> meet_without(Rank away, const std::function<void(ControlStream*)>& deed) {
  const RendezvousPoint point = abstract_point();
  const auto candidates = others_than(away, point);
  auto others = std::async(std::launch::async, [&] { return meet(candidates); });
  ControlStream rank = rank_at(point, away, kWorld);
  deed(&rank);
  return others.get();
}

TEST(Rank, ThatGoesAwayBeforeAllHaveArrivedIsNamedToTheOthers) {
  const auto outcomes = meet_without(2, [](ControlStream* rank) { rank->close(); });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.status.code(), ErrorCode::kRankFailed) << outcome.status.message();
    EXPECT_EQ(outcome.status.rank(), 2);
    EXPECT_THAT(outcome.status.message(), HasSubstr("rank 2 (host testhost, pid "));
  }
}

// Of a job whose ranks nobody starts again.
TEST(Rank, ThatComesOnceAndGoesAwayIsNotWaitedFor) {
  RendezvousPoint point = abstract_point();
  point.comes_once = true;
  const auto candidates = others_than(2, point);
  auto others = std::async(std::launch::async, [&] { return meet(candidates); });
  rank_at(point, 2, kWorld).close();
  for (const Outcome& outcome : others.get()) {
    EXPECT_EQ(outcome.status.code(), ErrorCode::kRankFailed) << outcome.status.message();
    EXPECT_EQ(outcome.status.rank(), 2);
    EXPECT_THAT(outcome.status.message(), testing::Not(HasSubstr("did not come again")));
  }
}

TEST(Rendezvous, AwaitsWhoComesOnceNoLongerThanItsKernelTells) {
  const TimePoint now = Clock::now();
  for (const bool comes_once : {false, true}) {
    for (const bool is_end : {false, true}) {
      Rendezvous rendezvous(2, now, comes_once);
      ASSERT_TRUE(rendezvous.admit(test_member(1), 2));
      rendezvous.depart(1, now, is_end);
      EXPECT_EQ(rendezvous.lost(now).ok(), !(comes_once && is_end));
      EXPECT_FALSE(rendezvous.lost(now + grace::kReturn));
    }
  }
}

TEST(Rank, ThatCannotTakePartTellsTheOthersWhy) {
  const Status why(ErrorCode::kUnsupported, "no such device");
  const auto outcomes = meet_without(1, [&](ControlStream* rank) {
    say(rank, encode_refusal(why, MessageType::kDecline));
    EXPECT_EQ(hear(rank), MessageType::kRefusal);
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.status.code(), ErrorCode::kUnsupported);
    EXPECT_EQ(outcome.status.rank(), 1);
    EXPECT_EQ(outcome.status.message(), "rank 1 cannot take part: no such device");
  }
}

// Rank 0 too, and the last one to come.
TEST(Rank, MayDeclineInsteadOfJoining) {
  for (const Rank declining : {0, 1, 2}) {
    const RendezvousPoint point = abstract_point();
    Candidate who = world_of(point, kWorld)[static_cast<std::size_t>(declining)];
    who.member.settings.clear();  // it may fail before it knows them
    const auto candidates = others_than(declining, point);
    auto others = std::async(std::launch::async, [&] { return meet(candidates); });
    ArbiterClient::decline(point, kWorld, who.member, Status(ErrorCode::kUnsupported, "no device"));
    for (const Outcome& outcome : others.get()) {
      EXPECT_EQ(outcome.status.code(), ErrorCode::kUnsupported) << outcome.status.message();
      EXPECT_EQ(outcome.status.rank(), declining);
    }
  }
}

TEST(Rank, ThatDeclinesWhenAllHaveMetHasFailed) {
  const FailureDecision decision = decision_when_rank_one_says(
      encode_refusal({ErrorCode::kUnsupported, "no device"}, MessageType::kDecline));
  EXPECT_EQ(decision.code, ErrorCode::kUnsupported);
  EXPECT_EQ(decision.failed_rank, 1);
}

// Nobody listens any more where the arbiter was.
TEST(RankZero, ThatGoesAwayBeforeAllHaveArrivedIsNamedToTheOthers) {
  const RendezvousPoint point = abstract_point();
  auto listener = listen_unix(point.name);
  ASSERT_TRUE(listener.has_value());
  auto others = std::async(std::launch::async, [&] { return meet({world_of(point, 3)[1]}); });
  {
    ControlStream arbiter = accept_at(*listener);
    EXPECT_EQ(hear(&arbiter), MessageType::kJoin);
    listener->fd = GuardedFd();
  }
  const Status told = others.get()[0].status;
  EXPECT_EQ(told.code(), ErrorCode::kRankFailed) << told.message();
  EXPECT_EQ(told.rank(), 0);
}

}  // namespace
}  // namespace unisono::rendezvous
