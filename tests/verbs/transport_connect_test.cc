// Ranks that ask rdma_cm for the paths between their ports: the epochs are those of ranks that do
// not, only that an answer may be late, or no.
#include <gmock/gmock.h>

#include <string>

#include "tests/support/seed.h"
#include "tests/verbs/transport_fixture.h"

namespace unisono::verbs::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;

TEST(Asking, EachPortIsAskedForOnceALinkHoweverManyItsQueuePairsAre) {
  WorldShape shape{.ranks = 3, .ports = 2, .askers = {0, 1, 2}};
  shape.options.queue_pairs = 3;
  World world(std::move(shape));
  ASSERT_TRUE(world.greet());
  for (Rank rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(world.cm(rank).questions, SizeIs(2 * 2)) << "two peers, two ports";
    EXPECT_EQ(world.cm(rank).ids, 0);
  }
  EXPECT_EQ(world.cm(0).questions[0].source, "10.0.0.1");
  EXPECT_EQ(world.cm(0).questions[0].target.substr(0, 7), "10.0.0.");
  for (int round = 0; round < 5; ++round) world.send_a_round(round);
  ASSERT_TRUE(world.settle());
  world.close_all();
}

TEST(Asking, MayBeTheChoiceOfOneRankAlone) {
  World world({.ranks = 2, .ports = 2, .askers = {1}});
  ASSERT_TRUE(world.greet());
  for (int round = 0; round < 5; ++round) world.send_a_round(round);
  ASSERT_TRUE(world.settle());
  EXPECT_THAT(world.cm(1).questions, SizeIs(2));
  world.close_all();
}

TEST(Asking, WaitsForNothingAndLosesNothing) {
  World world({.ranks = 2, .ports = 1, .askers = {0, 1}});
  ASSERT_TRUE(world.stands());
  world.cm(0).silent = true;
  world.send_a_round(1);
  ASSERT_TRUE(world.pump_until([&] { return world.cm(0).looks > 100; }, "looks for an answer"));
  EXPECT_EQ(world.witness(1).count(0), 0u);
  EXPECT_EQ(world.witness(0).count(1), 0u) << "who has its path waits for the other, too";
  world.cm(0).silent = false;
  ASSERT_TRUE(world.settle());
  world.close_all();
}

TEST(Asking, PortWithoutAPathIsLeftForAnotherAndSaysSo) {
  LogGuard log;
  log.expect("fake0 port 1");
  WorldShape shape{.ranks = 2, .ports = 2, .askers = {0, 1}};
  World world(std::move(shape));
  ASSERT_TRUE(world.stands());
  world.cm(0).unreachable = {{"10.0.0.1", ENETUNREACH}};
  for (int round = 0; round < 5; ++round) world.send_a_round(round);
  ASSERT_TRUE(world.settle());
  EXPECT_TRUE(has_line(log, {"rank 1 over fake0 port 1", "ADDR_ERROR (Network is unreachable",
                             "going on over fake1 port 1"}));
  EXPECT_EQ(world.cm(0).ids + world.cm(1).ids, 0);
  world.close_all();
}

TEST(Asking, WithoutAnyPathBothRanksLearnWhy) {
  World world({.ranks = 2, .ports = 1, .askers = {0, 1}});
  ASSERT_TRUE(world.stands());
  world.cm(1).route_answers = {{RDMA_CM_EVENT_ROUTE_ERROR, -EINVAL}};
  world.send(0, 1, {.bytes = 8});
  for (const Rank rank : {0, 1}) {
    const Status end = world.end_of(rank, 1 - rank);
    EXPECT_EQ(end.code(), ErrorCode::kRankFailed);
    EXPECT_EQ(end.rank(), 1 - rank);
    EXPECT_THAT(end.message(), AllOf(HasSubstr("fake0 port 1: rdma_cm finds no path from "
                                               "::ffff:10.0.0.2 to ::ffff:10.0.0.1"),
                                     HasSubstr("ROUTE_ERROR")));
  }
  EXPECT_EQ(world.cm(0).ids + world.cm(1).ids, 0);
}

TEST(Asking, EndsWithTheEpochThatItIsFor) {
  LogGuard log;
  log.expect("fake");
  World world({.ranks = 2, .ports = 2, .askers = {0, 1}});
  ASSERT_TRUE(world.stands());
  world.cm(0).silent = true;
  world.send_a_round(1);
  ASSERT_TRUE(world.pump_until([&] { return world.cm(0).ids == 2; }, "questions"));
  world.network().set_link(1, 0, false);
  ASSERT_TRUE(world.pump_until([&] { return world.cm(0).ids == 1; }, "the next epoch"));
  world.cm(0).silent = false;
  ASSERT_TRUE(world.settle());
  EXPECT_EQ(world.cm(0).ids, 0);
  world.close_all();
}

TEST(Asking, EpochsOfAStreamWhosePortsGoDownAskAnew) {
  const unisono::test::SeedTrace trace;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    LogGuard log;
    log.expect("fake");
    WorldShape shape{.ranks = 2, .ports = 2, .askers = {0, 1}};
    shape.network.seed = seed;
    shape.network.piece_bytes_max = 8 * 1024;
    World world(std::move(shape));
    ASSERT_TRUE(world.greet());
    for (int round = 0; round < 9; ++round) {
      world.send_a_round(round);
      if (round == 2) world.network().set_link(0, 0, false);
      if (round == 5) world.network().set_link(0, 0, true);
      if (round == 7) world.network().set_link(1, 1, false);
    }
    ASSERT_TRUE(world.settle()) << "seed " << seed;
    EXPECT_GT(world.cm(0).questions.size(), 2u);
    EXPECT_EQ(world.cm(0).ids + world.cm(1).ids, 0);
    world.close_all();
    if (HasFailure()) return;
  }
}

TEST(Asking, RanksThatGoMeanwhileLeaveNothing) {
  for (const bool killed : {false, true}) {
    World world({.ranks = 2, .ports = 1, .askers = {0, 1}});
    ASSERT_TRUE(world.stands());
    world.cm(0).silent = true;
    world.send(1, 0, {.bytes = 8});
    ASSERT_TRUE(world.pump_until([&] { return world.cm(0).ids == 1; }, "a question"));
    world.kill(killed ? 0 : 1);
    if (!killed) {
      EXPECT_FALSE(world.end_of(0, 1).ok());
    }
    EXPECT_EQ(world.cm(0).ids, 0);
  }
}

TEST(Asking, WithoutTheKernelsPartThereIsNoTransport) {
  const auto cm = std::make_shared<ScriptedCm>();
  cm->failing = {{"create_event_channel", ENOENT}};
  FakeFabric network(fake_world(1, 1));
  auto side = make_side_transport(0, 1);
  ASSERT_TRUE(side);
  VerbsOptions options;
  options.connect = VerbsConnect::kCm;
  const auto made = VerbsTransport::make(network.api(0), options, std::move(*side), cm);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code(), ErrorCode::kUnsupported);
  EXPECT_THAT(made.error().message(), HasSubstr("modprobe rdma_ucm"));
  EXPECT_EQ(network.counters(0).live(), 0);
}

}  // namespace
}  // namespace unisono::verbs::test
