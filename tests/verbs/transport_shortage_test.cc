// Calls of the library that fail: making a transport or a link fails with words, user memory that
// cannot be registered goes through staging, and nothing is left behind.
#include <gmock/gmock.h>

#include <cerrno>
#include <string>

#include "tests/support/watchdog.h"
#include "tests/verbs/transport_fixture.h"

namespace unisono::verbs::test {
namespace {

using testing::HasSubstr;

struct Failing {
  FakeCall call;
  const char* name;  ///< of the test
  const char* words;
  int error_number;
};

class WithEveryCall : public testing::TestWithParam<Failing> {};
INSTANTIATE_TEST_SUITE_P(
    Call, WithEveryCall,
    testing::Values(Failing{FakeCall::kGetDeviceList, "GetDeviceList", "device", ENOSYS},
                    Failing{FakeCall::kOpenDevice, "OpenDevice", "device", EMFILE},
                    Failing{FakeCall::kQueryDevice, "QueryDevice", "ibv_query_device", EIO},
                    Failing{FakeCall::kQueryPort, "QueryPort", "port", EIO},
                    Failing{FakeCall::kQueryPkey, "QueryPkey", "port", EIO},
                    Failing{FakeCall::kQueryGidEx, "QueryGid", "GID", EIO},
                    Failing{FakeCall::kAllocPd, "AllocPd", "ibv_alloc_pd", ENOMEM},
                    Failing{FakeCall::kRegMr, "RegMr", "ibv_reg_mr", ENOMEM},
                    Failing{FakeCall::kCreateCq, "CreateCq", "ibv_create_cq", ENOMEM},
                    Failing{FakeCall::kCreateSrq, "CreateSrq", "ibv_create_srq", ENOMEM},
                    Failing{FakeCall::kPostSrqRecv, "PostSrqRecv", "ibv_post_srq_recv", ENOMEM},
                    Failing{FakeCall::kCreateQp, "CreateQp", "ibv_create_qp", ENOMEM},
                    Failing{FakeCall::kModifyQp, "ModifyQp", "ibv_modify_qp", EINVAL},
                    Failing{FakeCall::kPostSend, "PostSend", "ibv_post_send", ENOMEM},
                    Failing{FakeCall::kPollCq, "PollCq", "", EIO},
                    Failing{FakeCall::kGetAsyncEvent, "GetAsyncEvent", "", EIO}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(WithEveryCall, MakingATransportSucceedsOrSaysWhyNotAndLeavesNothing) {
  const Failing& failing = GetParam();
  LogGuard log;
  log.expect("fake");
  for (int nth = 1; nth <= 10; ++nth) {
    for (const int ports : {1, 2}) {
      FakeFabric network(fake_world(2, ports));
      network.fail_call(0, failing.call, nth, failing.error_number);
      auto side = make_side_transport(0, 2);
      ASSERT_TRUE(side.has_value());
      VerbsOptions options;
      options.size = 2;
      auto made = VerbsTransport::make(network.api(0), options, std::move(*side));
      if (!made) {
        EXPECT_THAT(made.error().message(), HasSubstr(failing.words));
        EXPECT_NE(made.error().code(), ErrorCode::kRankFailed);
      } else {
        made->reset();
      }
      EXPECT_EQ(network.counters(0).live(), 0) << failing.name << " " << nth;
    }
  }
}

// Whatever is refused in the middle: frames arrive, or both sides know why not.
TEST_P(WithEveryCall, LinkWorksOrEndsWithWordsOnBothSides) {
  const Failing& failing = GetParam();
  LogGuard log;
  log.expect("fake");
  log.expect("cannot be registered");
  for (int nth = 1; nth <= 12; ++nth) {
    for (const int ports : {1, 2}) {
      if (unisono::test::is_anothers_case(static_cast<std::size_t>(nth + ports), 2)) continue;
      World world({.ranks = 2, .ports = ports});
      world.network().fail_call(0, failing.call, nth, failing.error_number);
      for (int frame = 0; frame < 6; ++frame) {
        for (const Rank from : {0, 1}) {
          world.send(from, 1 - from, {.bytes = frame % 2 == 0 ? 100 : kLarge});
        }
        world.turns(3);
      }
      const auto is_over = [&](Rank from, Rank to) {
        return (world.has_ended(from, to) && world.has_ended(to, from)) ||
               world.has_settled(from, to);
      };
      ASSERT_TRUE(world.pump_until([&] { return is_over(0, 1) && is_over(1, 0); }, "an end"))
          << failing.name << " " << nth << " with " << ports << " ports";
      for (const Rank rank : {0, 1}) {
        const auto cause = world.witness(rank).closed_cause(1 - rank);
        if (!cause.has_value()) continue;
        const bool is_own = rank == 0 && cause->code() == ErrorCode::kOutOfResources;
        EXPECT_EQ(cause->rank(), is_own ? rank : 1 - rank) << cause->message();
        EXPECT_EQ(is_own, rank == 0 && failing.error_number == ENOMEM) << cause->message();
        EXPECT_THAT(cause->message(), HasSubstr(failing.words));
        EXPECT_THAT(cause->message(), HasSubstr("errno"));
      }
      world.close_all();
      if (HasFailure()) return;
    }
  }
}

TEST(Shortage, OnePortThatRefusesIsLeftOutForTheOther) {
  for (const FakeCall call : {FakeCall::kCreateQp, FakeCall::kModifyQp}) {
    LogGuard log;
    log.expect("a port is left out");
    World world({.ranks = 2, .ports = 2});
    world.network().fail_call(0, call, 1, ENOMEM);
    ASSERT_TRUE(world.greet());
    EXPECT_TRUE(has_line(log, {"a port is left out", "fake0 port 1"}));
    world.close_all();
  }
}

// On RoCE the kernel looks for the peer when a queue pair is told of it.
TEST(Shortage, OnePortThatDoesNotReachThePeerIsLeftOutForTheOther) {
  // Two queue pairs are initialised, then each is made ready to receive and to send.
  for (int nth = 3; nth <= 6; ++nth) {
    LogGuard log;
    log.expect("going on over");
    World world({.ranks = 2, .ports = 2});
    world.network().fail_call(0, FakeCall::kModifyQp, nth, ETIMEDOUT);
    ASSERT_TRUE(world.greet()) << nth;
    const char* const left =
        nth <= 4 ? "fake0 port 1: ibv_modify_qp" : "fake1 port 1: ibv_modify_qp";
    EXPECT_TRUE(has_line(log, {"rank 1 over ", left, "going on over"})) << nth;
    world.close_all();
  }
}

enum class Short { kSender, kReceiver, kBoth };
class WithoutLockableMemory : public testing::TestWithParam<Short> {
 protected:
  static void run_short(World& world) {
    if (GetParam() != Short::kReceiver) {
      world.network().fail_calls_from(0, FakeCall::kRegMr, 1, ENOMEM);
    }
    if (GetParam() != Short::kSender)
      world.network().fail_calls_from(1, FakeCall::kRegMr, 1, ENOMEM);
  }
};
INSTANTIATE_TEST_SUITE_P(At, WithoutLockableMemory,
                         testing::Values(Short::kSender, Short::kReceiver, Short::kBoth),
                         [](const auto& info) -> std::string {
                           if (info.param == Short::kBoth) return "both";
                           return info.param == Short::kSender ? "sender" : "receiver";
                         });

TEST_P(WithoutLockableMemory, FramesGoThroughStaging) {
  LogGuard log;
  log.expect("cannot be registered");
  World world;
  ASSERT_TRUE(world.greet());
  run_short(world);
  for (int frame = 0; frame < 40; ++frame) {
    ASSERT_TRUE(world.send(0, 1, {.bytes = kLarge + static_cast<std::size_t>(frame)}));
  }
  ASSERT_TRUE(world.settle());
  if (GetParam() != Short::kReceiver) {
    EXPECT_GE(world.verbs(0).work_counts().staged_bytes, 40 * kLarge);
  }
  if (GetParam() != Short::kSender) {
    EXPECT_GE(world.verbs(1).work_counts().staged_bytes, 40 * kLarge);
  }
  world.close_all();
}

// Everyone's staging is full of what it sends, and everyone has to receive.
TEST_P(WithoutLockableMemory, EverybodySendsAtOnce) {
  LogGuard log;
  log.expect("cannot be registered");
  World world;
  ASSERT_TRUE(world.greet());
  run_short(world);
  for (int frame = 0; frame < 60; ++frame) {
    for (const Rank from : {0, 1}) {
      world.try_send(from, 1 - from, {.bytes = kLarge, .kind = FrameKind::kData});
    }
    if (frame >= 30) world.turn();
  }
  ASSERT_TRUE(world.settle());
  EXPECT_GT(world.sent(0, 1), 2u);
  EXPECT_GT(world.sent(1, 0), 2u);
  world.close_all();
}

TEST(Shortage, FrameCancelledWithoutMemoryForACopyEndsTheLinkInWords) {
  LogGuard log;
  log.expect("a cancelled frame could not be kept");
  log.expect("cannot be registered");
  World world;
  ASSERT_TRUE(world.greet());
  world.network().hold(1);
  ASSERT_EQ(world.try_send(0, 1, {.bytes = kLarge}), PostResult::kPending);
  world.turns(20);
  world.network().fail_calls_from(0, FakeCall::kRegMr, 1, ENOMEM);
  EXPECT_EQ(world.cancel_all(0, 1), 1u);
  world.network().release(1);
  const auto is_over = [&] {
    return world.witness(1).count(0) == 2 || (world.has_ended(0, 1) && world.has_ended(1, 0));
  };
  EXPECT_TRUE(world.pump_until(is_over, "the frame or an end"));
  world.close_all();
}

class WithOddRings : public testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Bytes, WithOddRings,
                         testing::Values(4096, 4096 + 64, 32 * 1024, 64 * 1024 + 64,
                                         100 * 1024 + 192));

TEST_P(WithOddRings, EveryRingThatOptionsAllowCarriesEveryFrame) {
  const LogGuard log;
  WorldShape shape{.ranks = 2};
  shape.options.ring_bytes = GetParam();
  World world(std::move(shape));
  ASSERT_TRUE(world.greet());
  for (int frame = 0; frame < 60; ++frame) {
    for (const Rank from : {0, 1}) {
      const std::size_t bytes = frame % 5 == 0 ? 16 * 1024 : static_cast<std::size_t>(frame) * 333;
      ASSERT_TRUE(world.send(from, 1 - from, {.bytes = bytes}));
    }
  }
  ASSERT_TRUE(world.settle());
  world.close_all();
}

// The reader keeps the last few lines that it has consumed to itself, so the rest must do for the
// largest record and a skip before it.
TEST(Shortage, LargestFrameDoesNotWaitForWhatTheReaderNeverSays) {
  const LogGuard log;
  WorldShape shape{.ranks = 2};
  shape.options.ring_bytes = 64 * kLine;
  World world(std::move(shape));
  ASSERT_TRUE(world.greet());
  // The third lies at the ring's beginning, seven lines follow, and 31 are left before its end.
  for (int frame = 0; frame < 3; ++frame) ASSERT_TRUE(world.send(0, 1, {.bytes = 25 * kLine}));
  ASSERT_TRUE(world.settle());
  for (int frame = 0; frame < 7; ++frame) ASSERT_TRUE(world.send(0, 1, {.bytes = 0}));
  ASSERT_TRUE(world.settle());
  ASSERT_TRUE(world.send(0, 1, {.bytes = 31 * kLine}));
  ASSERT_TRUE(world.settle());
  world.close_all();
}

}  // namespace
}  // namespace unisono::verbs::test
