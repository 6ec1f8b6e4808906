// Ports that go down and come back, and work requests that fail: what was being sent goes on over
// another port, or the link ends and says why.
#include <gmock/gmock.h>

#include <string>

#include "tests/support/seed.h"
#include "tests/support/watchdog.h"
#include "tests/verbs/transport_fixture.h"

namespace unisono::verbs::test {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

class WithBothWaysToForget : public testing::TestWithParam<bool> {
 protected:
  WorldShape shape(int ports, std::uint64_t seed) const {
    WorldShape shape{.ranks = 2, .ports = ports};
    shape.network.forget_completions_of_destroyed = GetParam();
    shape.network.seed = seed;
    shape.network.piece_bytes_max = 8 * 1024;
    return shape;
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, WithBothWaysToForget, testing::Bool(),
                         [](const auto& info) { return info.param ? "vanish" : "stay"; });

TEST_P(WithBothWaysToForget, StreamSurvivesThePortThatGoesDown) {
  const unisono::test::SeedTrace trace;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    if (unisono::test::is_anothers_case(seed, 3)) continue;
    LogGuard log;
    log.expect("fake");
    World world(shape(2, seed));
    ASSERT_TRUE(world.greet());
    const int host = static_cast<int>(seed % 2);
    for (int round = 0; round < 12; ++round) {
      world.send_a_round(round);
      if (round == 5) world.network().set_link(host, 0, false);
      world.turns(static_cast<int>(seed % 4));
    }
    ASSERT_TRUE(world.settle()) << "seed " << seed;
    EXPECT_FALSE(world.has_ended(0, 1));
    EXPECT_FALSE(world.has_ended(1, 0));
    world.close_all();
    EXPECT_TRUE(has_line(log, {"rank ", "fake0 port 1"}));
    if (HasFailure()) return;
  }
}

TEST_P(WithBothWaysToForget, StreamSurvivesAsLongAsOneOfFourPortsIsLeft) {
  const unisono::test::SeedTrace trace;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    LogGuard log;
    log.expect("fake");
    World world(shape(4, seed));
    ASSERT_TRUE(world.greet());
    for (int round = 0; round < 24; ++round) {
      world.send_a_round(round);
      // Now at one end, now at the other, never the last.
      if (round % 7 == 3 && round < 21) world.network().set_link(round % 2, round / 7, false);
      world.turns(2);
    }
    ASSERT_TRUE(world.settle()) << "seed " << seed;
    world.close_all();
    if (HasFailure()) return;
  }
}

TEST_P(WithBothWaysToForget, BothSidesMayNoticeAtOnce) {
  const unisono::test::SeedTrace trace;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    LogGuard log;
    log.expect("fake");
    World world(shape(4, seed));
    ASSERT_TRUE(world.greet());
    for (int round = 0; round < 8; ++round) {
      world.send_a_round(round);
      if (round == 3) {
        world.network().set_link(0, 0, false);
        world.network().set_link(1, 1, false);
      }
    }
    ASSERT_TRUE(world.settle()) << "seed " << seed;
    world.close_all();
    if (HasFailure()) return;
  }
}

TEST(Failover, WarningSaysWhoseLinkLeavesWhatAndWhereItGoesOn) {
  LogGuard log;
  log.expect("fake0 port 1");
  World world({.ranks = 2, .ports = 2});
  ASSERT_TRUE(world.greet());
  world.network().fail_next_request(0, 0, IBV_WC_RETRY_EXC_ERR);
  world.send_a_round(1);
  ASSERT_TRUE(world.settle());
  EXPECT_TRUE(has_line(
      log, {"rank 1", "fake0 port 1", "RETRY_EXC_ERR (12)", "going on over fake1 port 1"}));
  world.close_all();
}

TEST(Failover, PortThatIsDownEndsTheLinkWhereThereIsNoOther) {
  for (const int ports : {1, 2}) {
    LogGuard log;
    log.expect("fake");
    World world({.ranks = 2, .ports = ports});
    ASSERT_TRUE(world.greet());
    world.send_a_round(1);
    for (int port = 0; port < ports; ++port) world.network().set_link(0, port, false);
    const Status cause = world.end_of(0, 1);
    EXPECT_EQ(cause.code(), ErrorCode::kRankFailed) << cause.message();
    EXPECT_EQ(cause.rank(), 1);
    // The port's event, or what the peer saw of it, if that comes first.
    EXPECT_THAT(cause.message(),
                AllOf(HasSubstr("rank 1"), HasSubstr("fake"), HasSubstr("port 1: "),
                      AnyOf(HasSubstr("PORT_ERR"), HasSubstr("RETRY_EXC_ERR"))));
    const Status there = world.end_of(1, 0);
    EXPECT_EQ(there.code(), ErrorCode::kRankFailed);
    EXPECT_THAT(there.message(), AllOf(HasSubstr("rank 0"), HasSubstr("fake")));
    world.close_all();
  }
}

TEST(Failover, PortThatCameBackIsUsedWhenTheNextOneFails) {
  LogGuard log;
  log.expect("fake");
  World world({.ranks = 2, .ports = 2});
  ASSERT_TRUE(world.greet());
  // Nothing is under way, so only events tell: no rail is banned by either side.
  world.network().set_link(0, 0, false);
  ASSERT_TRUE(world.pump_until([&] { return world.verbs(1).work_counts().epochs == 2; }, "epoch"));
  world.send_a_round(1);
  ASSERT_TRUE(world.settle());
  world.network().set_link(0, 0, true);
  world.turns(600);
  world.network().set_link(0, 1, false);
  ASSERT_TRUE(world.pump_until([&] { return world.verbs(1).work_counts().epochs == 3; }, "epoch"));
  world.send_a_round(2);
  ASSERT_TRUE(world.settle());
  world.close_all();
}

TEST(Failover, BrokenDeviceIsLeftForTheOther) {
  LogGuard log;
  log.expect("fake");
  World world({.ranks = 2, .ports = 2});
  ASSERT_TRUE(world.greet());
  world.send_a_round(1);
  world.network().break_device(0, 0);
  world.send_a_round(2);
  ASSERT_TRUE(world.settle());
  EXPECT_TRUE(has_line(log, {"rank 1", "fake0 port 1"}));
  world.close_all();
}

// Work that is only staged over a port is no proof that it works.
TEST(Failover, LinkEndsWhenNothingGetsThroughOverAnyPort) {
  LogGuard log;
  log.expect("RETRY_EXC_ERR");
  World world({.ranks = 2, .ports = 2});
  ASSERT_TRUE(world.greet());
  world.stranger = [&] {
    for (const int device : {0, 1}) {
      world.network().fail_next_request(0, device, IBV_WC_RETRY_EXC_ERR);
    }
  };
  ASSERT_TRUE(world.send(1, 0, {.bytes = kLarge}));
  const auto is_over = [&] {
    return world.has_ended(0, 1) || world.verbs(0).work_counts().epochs > 5;
  };
  EXPECT_TRUE(world.pump_until(is_over, "the end of the link"));
  EXPECT_TRUE(world.has_ended(0, 1)) << "every port is tried again and again";
  world.close_all();
}

TEST(Failover, UnpluggedPeerIsNamedWithThePortAndTheProvidersWord) {
  LogGuard log;
  log.expect("fake");
  World world({.ranks = 2, .ports = 1});
  ASSERT_TRUE(world.greet());
  world.network().unplug(1);
  world.send(0, 1, {.bytes = 8});
  const Status cause = world.end_of(0, 1);
  EXPECT_EQ(cause.code(), ErrorCode::kRankFailed);
  EXPECT_EQ(cause.rank(), 1);
  EXPECT_THAT(cause.message(),
              AllOf(HasSubstr("rank 1 over fake0 port 1"), HasSubstr("RETRY_EXC_ERR (12): ")));
  world.close_all();
}

TEST(Failover, OtherLinksOfTheRankGoOn) {
  LogGuard log;
  log.expect("fake");
  World world({.ranks = 3, .ports = 1});
  ASSERT_TRUE(world.greet());
  world.network().unplug(2);
  world.send(0, 2, {.bytes = kLarge});
  world.send(0, 2, {.bytes = 8});
  EXPECT_EQ(world.end_of(0, 2).code(), ErrorCode::kRankFailed);
  world.send_a_round(1);
  ASSERT_TRUE(world.settle(0, 1));
  ASSERT_TRUE(world.settle(1, 0));
  world.close_all();
}

struct BadStatus {
  ibv_wc_status status;
  const char* word;
  bool refused;  ///< the peer did not allow it: another port will not help
};

class WithEveryBadStatus : public testing::TestWithParam<BadStatus> {};
INSTANTIATE_TEST_SUITE_P(
    Status, WithEveryBadStatus,
    testing::Values(BadStatus{IBV_WC_LOC_LEN_ERR, "LOC_LEN_ERR", false},
                    BadStatus{IBV_WC_LOC_QP_OP_ERR, "LOC_QP_OP_ERR", false},
                    BadStatus{IBV_WC_LOC_EEC_OP_ERR, "LOC_EEC_OP_ERR", false},
                    BadStatus{IBV_WC_LOC_PROT_ERR, "LOC_PROT_ERR", false},
                    BadStatus{IBV_WC_WR_FLUSH_ERR, "WR_FLUSH_ERR", false},
                    BadStatus{IBV_WC_MW_BIND_ERR, "MW_BIND_ERR", false},
                    BadStatus{IBV_WC_BAD_RESP_ERR, "BAD_RESP_ERR", false},
                    BadStatus{IBV_WC_LOC_ACCESS_ERR, "LOC_ACCESS_ERR", false},
                    BadStatus{IBV_WC_REM_INV_REQ_ERR, "REM_INV_REQ_ERR", true},
                    BadStatus{IBV_WC_REM_ACCESS_ERR, "REM_ACCESS_ERR", true},
                    BadStatus{IBV_WC_REM_OP_ERR, "REM_OP_ERR", true},
                    BadStatus{IBV_WC_RETRY_EXC_ERR, "RETRY_EXC_ERR", false},
                    BadStatus{IBV_WC_RNR_RETRY_EXC_ERR, "RNR_RETRY_EXC_ERR", false},
                    BadStatus{IBV_WC_LOC_RDD_VIOL_ERR, "LOC_RDD_VIOL_ERR", false},
                    BadStatus{IBV_WC_REM_INV_RD_REQ_ERR, "REM_INV_RD_REQ_ERR", false},
                    BadStatus{IBV_WC_REM_ABORT_ERR, "REM_ABORT_ERR", false},
                    BadStatus{IBV_WC_INV_EECN_ERR, "INV_EECN_ERR", false},
                    BadStatus{IBV_WC_INV_EEC_STATE_ERR, "INV_EEC_STATE_ERR", false},
                    BadStatus{IBV_WC_FATAL_ERR, "FATAL_ERR", false},
                    BadStatus{IBV_WC_RESP_TIMEOUT_ERR, "RESP_TIMEOUT_ERR", false},
                    BadStatus{IBV_WC_GENERAL_ERR, "GENERAL_ERR", false}),
    [](const auto& info) { return std::string(info.param.word); });

TEST_P(WithEveryBadStatus, LinkOverOnePortEndsAndSaysEverything) {
  const auto& [status, word, refused] = GetParam();
  LogGuard log;
  World world({.ranks = 2, .ports = 1});
  ASSERT_TRUE(world.greet());
  world.network().fail_next_request(0, 0, status);
  world.send_a_round(1);
  const Status cause = world.end_of(0, 1);
  EXPECT_EQ(cause.code(), refused ? ErrorCode::kProtocol : ErrorCode::kRankFailed);
  EXPECT_EQ(cause.rank(), 1);
  const std::string number = " (" + std::to_string(static_cast<int>(status)) + "): ";
  EXPECT_THAT(cause.message(),
              AllOf(HasSubstr("rank 1"), HasSubstr("fake0 port 1"), HasSubstr(word + number)));
  const Status there = world.end_of(1, 0);
  EXPECT_EQ(there.rank(), 0);
  EXPECT_THAT(there.message(), AllOf(HasSubstr("rank 0"), HasSubstr(word)));
  world.close_all();
}

TEST_P(WithEveryBadStatus, LinkOverTwoPortsGoesOnUnlessItWasRefused) {
  const auto& [status, word, refused] = GetParam();
  LogGuard log;
  if (!refused) {
    log.expect(word);
    // The other end may find that nobody answers before it hears why.
    log.expect("RETRY_EXC_ERR");
  }
  World world({.ranks = 2, .ports = 2});
  ASSERT_TRUE(world.greet());
  for (const int device : {0, 1}) {
    world.network().fail_next_request(device, device, status);
    world.send_a_round(1);
    if (refused) {
      EXPECT_EQ(world.end_of(0, 1).code(), ErrorCode::kProtocol);
      break;
    }
    // The other end has banned its other port: no pair of the same number is left after that.
    ASSERT_TRUE(world.settle());
  }
  world.close_all();
}

}  // namespace
}  // namespace unisono::verbs::test
