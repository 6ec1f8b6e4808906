// Ranks as processes whose arbiter dies or leaves: a standby takes over, and all that are left hear
// of the next death as they would have before.
#include <gmock/gmock.h>

#include <future>
#include <optional>

#include "rendezvous/arbiter/arbiter_server.h"
#include "rendezvous/client/standby_dial.h"
#include "rendezvous/failure/standby.h"
#include "rendezvous_support.h"
#include "tests/support/limit.h"

namespace unisono::rendezvous {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string named_url() { return "env://" + abstract_point().name; }
std::string tcp_url() { return "tcp://127.0.0.1:" + std::to_string(tcp_point().port); }

std::vector<RankProcess> joined(const std::string& url, int size,
                                const std::string& manner = "stays") {
  std::vector<RankProcess> ranks;
  for (Rank rank = 0; rank < size; ++rank) ranks.emplace_back(url, rank, size, manner);
  for (RankProcess& rank : ranks) EXPECT_EQ(rank.line(), "joined");
  return ranks;
}

void expect_all_hear(std::vector<RankProcess>* ranks, const std::vector<int>& who, Rank failed) {
  for (const int rank : who) {
    EXPECT_THAT((*ranks)[static_cast<std::size_t>(rank)].line(),
                StartsWith("decision " + std::to_string(failed) + " rank"))
        << "at rank " << rank;
  }
}

TEST(Takeover, ADeathAfterThatOfRankZeroIsToldToAll) {
  auto ranks = joined(named_url(), 5);
  ranks[0].kill();
  expect_all_hear(&ranks, {1, 2, 3, 4}, 0);
  ranks[3].kill();
  expect_all_hear(&ranks, {1, 2, 4}, 3);
  for (const int survivor : {1, 2, 4}) EXPECT_EQ(ranks[survivor].finish(), 0);
}

TEST(Takeover, EachStandbyFollowsTheOneBefore) {
  auto ranks = joined(named_url(), 6);
  for (const Rank victim : {0, 1, 2, 5}) {
    ranks[static_cast<std::size_t>(victim)].kill();
    for (int rank = victim == 5 ? 3 : victim + 1; rank < (victim == 5 ? 5 : 6); ++rank) {
      expect_all_hear(&ranks, {rank}, victim);
    }
  }
}

TEST(Takeover, StandbysThatDieWithTheArbiterArePassedOver) {
  auto ranks = joined(named_url(), 5);
  ranks[1].kill();
  expect_all_hear(&ranks, {0, 2, 3, 4}, 1);
  ranks[0].kill();
  expect_all_hear(&ranks, {2, 3, 4}, 0);
  ranks[4].kill();
  expect_all_hear(&ranks, {2, 3}, 4);
}

// Nobody saw them die but the arbiter that was killed as well.
TEST(Takeover, RanksThatDieInTheSameMomentAreToldToAll) {
  auto ranks = joined(named_url(), 5);
  for (const int victim : {0, 1, 3}) ranks[victim].kill();
  for (const int survivor : {2, 4}) {
    std::vector<std::string> lines;
    for (int i = 0; i < 3; ++i) lines.push_back(ranks[survivor].line());
    EXPECT_THAT(lines,
                testing::UnorderedElementsAre(StartsWith("decision 0 "), StartsWith("decision 1 "),
                                              StartsWith("decision 3 ")));
  }
}

TEST(Takeover, ADeathAfterRankZeroLeftWithItsProcessIsToldToAll) {
  auto ranks = joined(named_url(), 4);
  EXPECT_EQ(ranks[0].finish(), 0);
  ranks[2].kill();
  expect_all_hear(&ranks, {1, 3}, 2);
  for (const int survivor : {1, 3}) EXPECT_EQ(ranks[survivor].finish(), 0);
}

TEST(Takeover, ALeavingJobNamesNobody) {
  auto ranks = joined(named_url(), 5);
  for (RankProcess& rank : ranks) {
    EXPECT_EQ(rank.finish(), 0);
    EXPECT_EQ(rank.line(), "") << "a decision";
  }
}

// The process of rank 1, which is a standby, as `self` sees it.
struct StandbyHost {
  StandbyHost(Rank self, int size) : world{self, size, "a job", test_key(), {}} {
    const std::string name = abstract_point().name;
    auto listener = listen_unix(name);
    EXPECT_TRUE(listener.has_value());
    listener->needs_proof = true;
    for (Rank rank = 0; rank < size; ++rank) world.members.push_back(test_member(rank));
    world.members[1].addresses = "standby-unix " + name + "\n";
    options.size = size;
    options.job_id = options.handshake_job_id = options.rendezvous = world.job_id;
    options.key = world.key;
    options.self = 1;
    options.members = world.members;
    options.listeners.push_back(std::move(*listener));
  }
  World world;
  ArbiterOptions options;
};

DialOutcome end_of(StandbyDial* dial) {
  DialOutcome outcome = DialOutcome::kPending;
  EXPECT_TRUE(eventually([&] {
    outcome = dial->advance(Clock::now());
    return outcome != DialOutcome::kPending;
  }));
  return outcome;
}

// A rank that has connected and not proved yet who it is comes in the last moment.
TEST(Standby, ThatLeavesTellsARankThatIsOnItsWay) {
  StandbyHost host(2, 3);
  StandbyDial dial(host.world, 1, RejoinMessage{host.world.job_id, 2, {}, {}, {}, {}},
                   Clock::now());
  ASSERT_EQ(dial.advance(Clock::now()), DialOutcome::kPending);
  auto loop = start_standby(std::move(host.options));
  ASSERT_TRUE(loop.has_value()) << loop.error().message();
  auto ended = std::async(std::launch::async, [&] { end_standby(*loop, true); });
  // Time for an end without a word, which would be wrong at any speed.
  static_cast<void>(ended.wait_for(std::chrono::milliseconds(50)));
  EXPECT_EQ(end_of(&dial), DialOutcome::kLeft);
}

// Its memory may be that of one of another job by then.
TEST(Standby, ThatHasEndedEndsNoLaterOne) {
  StandbyHost first(1, 2), second(1, 2);
  const auto ended = start_standby(std::move(first.options));
  ASSERT_TRUE(ended.has_value()) << ended.error().message();
  end_standby(*ended, true);
  const auto loop = start_standby(std::move(second.options));
  ASSERT_TRUE(loop.has_value()) << loop.error().message();
  end_standby(*ended, true);
  StandbyDial dial(second.world, 1, RejoinMessage{second.world.job_id, 1, {}, {0}, {}, {}},
                   Clock::now());
  ASSERT_EQ(end_of(&dial), DialOutcome::kSeated);
  ControlStream stream = dial.take_stream();
  say(&stream, encode(MessageType::kGoodbye));
  stream.close();
}

TEST(Standby, SaysThatItIsTheOneThatLacksWhatAnArbiterTakes) {
  for (const bool has_descriptors : {false, true}) {
    StandbyHost host(1, 2);
    std::optional<test::Limit> none;
    if (!has_descriptors) none.emplace(RLIMIT_NOFILE, 0);
    const auto loop = ArbiterLoop::open(std::move(host.options), GuardedFd(), -1);
    none.reset();
    EXPECT_EQ(loop.status().rank(), 1);
    EXPECT_THAT(loop.status().message(), StartsWith("rank 1"));
    EXPECT_THAT(loop.status().message(), HasSubstr(has_descriptors ? "epoll_ctl" : "epoll_create"));
  }
}

TEST(Takeover, ARankThatLeftBeforeIsNotTakenForDead) {
  const std::string url = named_url();
  std::vector<RankProcess> ranks;
  for (Rank rank = 0; rank < 5; ++rank) {
    ranks.emplace_back(url, rank, 5, rank == 1 || rank == 4 ? "leaves" : "stays");
  }
  for (RankProcess& rank : ranks) EXPECT_EQ(rank.line(), "joined");
  ranks[0].kill();
  expect_all_hear(&ranks, {2, 3}, 0);
  ranks[3].kill();
  expect_all_hear(&ranks, {2}, 3);
}

// Rank 3 is told as missing by the next arbiter and not rank 2, whose goodbye nobody but that has
// read.
TEST(Takeover, ARankThatLeavesAStoppedArbiterIsNotTakenForDead) {
  auto ranks = joined(tcp_url(), 5, "apart");
  ranks[0].stop();
  EXPECT_EQ(ranks[2].finish(), 0);
  for (const int victim : {3, 0}) ranks[victim].kill();
  expect_all_hear(&ranks, {1, 4}, 0);
  expect_all_hear(&ranks, {1, 4}, 3);
}

// Other hosts than their standby, so that they come over TCP and prove that they know the key.
TEST(Takeover, WorksAcrossHosts) {
  auto ranks = joined(tcp_url(), 4, "apart");
  ranks[0].kill();
  expect_all_hear(&ranks, {1, 2, 3}, 0);
  ranks[2].kill();
  expect_all_hear(&ranks, {1, 3}, 2);
}

TEST(Takeover, IsNotHeldUpByAForkedChildOfTheArbiter) {
  auto ranks = joined(named_url(), 4, "forks");
  ranks[0].kill();
  expect_all_hear(&ranks, {1, 2, 3}, 0);
  ranks[1].kill();
  expect_all_hear(&ranks, {2, 3}, 1);
}

// What was reported to an arbiter that dies before it answers is reported to the next one.
TEST(Takeover, AReportThatTheDyingArbiterDidNotAnswerIsAnswered) {
  const std::string url = named_url();
  RankProcess zero(url, 0, 4), two(url, 2, 4), three(url, 3, 4);
  RankProcess one(url, 1, 4, "reports");  // a passed deadline in communicator 7, as it hears of 0
  for (RankProcess* rank : {&zero, &one, &two, &three}) EXPECT_EQ(rank->line(), "joined");
  zero.kill();
  for (RankProcess* rank : {&one, &two, &three}) {
    EXPECT_THAT(rank->line(), StartsWith("decision 0 "));
    EXPECT_THAT(rank->line(),
                StartsWith("decision 3 all_reduce, timed out: rank 3 had not arrived"));
  }
}

}  // namespace
}  // namespace unisono::rendezvous
