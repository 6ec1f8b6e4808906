// How links begin and end: peers that verbs does not reach, goodbyes, deadlines, ranks that go or
// die while they meet, and worlds of more than two.
#include <gmock/gmock.h>

#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "tests/verbs/transport_impostor.h"

namespace unisono::verbs::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Than a link waits for what its peer said was on its way.
constexpr auto kLongerThanAnyPatience = std::chrono::milliseconds(1100);

void exchange(World& world) {
  for (Rank from = 0; from < world.size(); ++from) {
    for (Rank to = 0; to < world.size(); ++to) {
      if (from == to) continue;
      ASSERT_TRUE(world.send(from, to, {.bytes = 100}));
      ASSERT_TRUE(world.send(from, to, {.bytes = kLarge}));
      ASSERT_TRUE(world.send(from, to, {.bytes = 16 * 1024, .kind = FrameKind::kData}));
    }
  }
  ASSERT_TRUE(world.settle());
}

std::uint64_t work_of(World& world, Rank rank) {
  const WorkCounts& counts = world.verbs(rank).work_counts();
  return counts.writes + counts.reads + counts.immediates;
}

TEST(Reach, PeerWithoutVerbsIsServedOverTheSideChannel) {
  const LogGuard log;
  World world({.ranks = 2, .plain = {1}});
  exchange(world);
  EXPECT_EQ(work_of(world, 0), 0u);
  world.close_all();
}

TEST(Reach, OneWithoutVerbsDoesNotKeepTheOthersFromIt) {
  const LogGuard log;
  World world({.ranks = 3, .plain = {2}});
  exchange(world);
  EXPECT_GT(work_of(world, 0), 0u);
  EXPECT_GT(work_of(world, 1), 0u);
  world.close_all();
}

TEST(Reach, PortsWithoutACommonNetworkAreSaidAloud) {
  LogGuard log;
  log.expect("is reached over TCP");
  WorldShape shape{.ranks = 2};
  shape.network.hosts = fake_world(2, 1).hosts;
  shape.network.hosts[1][0].link_layer = IBV_LINK_LAYER_INFINIBAND;
  World world(std::move(shape));
  EXPECT_TRUE(has_line(log, {"rank 1 is reached over TCP", "ib:7fff", "rocev2-ipv4:7fff"}));
  EXPECT_TRUE(has_line(log, {"rank 0 is reached over TCP", "ib:7fff", "rocev2-ipv4:7fff"}));
  exchange(world);
  EXPECT_EQ(work_of(world, 0) + work_of(world, 1), 0u);
  world.close_all();
}

TEST(Reach, CancelAndAbandonOverTheSideChannel) {
  const LogGuard log;
  World world({.ranks = 2, .plain = {1}});
  for (int frame = 0; frame < 20; ++frame) world.try_send(0, 1, {.bytes = kFramePayloadMax});
  world.turns(3);
  world.cancel_all(0, 1);
  ASSERT_TRUE(world.send(0, 1, {.bytes = 8}));
  const std::uint64_t last = world.sent(0, 1) - 1;
  EXPECT_TRUE(world.pump_until(
      [&] {
        const auto& frames = world.witness(1).frames(0);
        return !frames.empty() && frames.back().sequence == last;
      },
      "the last frame"));
  world.close_all();
}

TEST(Worlds, EightRanksAllToAll) {
  const LogGuard log;
  World world({.ranks = 8, .ports = 2});
  exchange(world);
  exchange(world);
  for (Rank rank = 0; rank < 8; ++rank) EXPECT_EQ(world.verbs(rank).work_counts().epochs, 7u);
  world.close_all();
}

TEST(Worlds, InfiniBandPortsWork) {
  const LogGuard log;
  FakeDeviceOptions device;
  device.link_layer = IBV_LINK_LAYER_INFINIBAND;
  WorldShape shape{.ranks = 3};
  shape.network.hosts = fake_world(3, 2, device).hosts;
  World world(std::move(shape));
  exchange(world);
  EXPECT_GT(work_of(world, 0), 0u);
  world.close_all();
}

TEST(Worlds, DevicesOfFewMeansWork) {
  const LogGuard log;
  FakeDeviceOptions device;
  device.qp_entries_max = 16;
  device.cq_entries_max = 128;
  device.srq_entries_max = 64;
  device.rd_atomic_max = 1;
  device.sges_max = 1;
  device.inline_bytes_max = 0;
  device.message_bytes_max = 4096;
  device.mtu = IBV_MTU_1024;
  WorldShape shape{.ranks = 3};
  shape.network.hosts = fake_world(3, 1, device).hosts;
  World world(std::move(shape));
  for (int round = 0; round < 5; ++round) exchange(world);
  EXPECT_EQ(world.network().counters(0).inlined, 0u);
  world.close_all();
}

TEST(Worlds, SenderNeverOutrunsTheReceivesOfItsPeer) {
  const LogGuard log;
  FakeDeviceOptions device;
  device.srq_entries_max = 64;
  WorldShape shape{.ranks = 2};
  shape.network.hosts = fake_world(2, 1, device).hosts;
  World world(std::move(shape));
  ASSERT_TRUE(world.greet());
  world.pause(1);
  const std::uint64_t before = world.verbs(0).work_counts().writes;
  for (int frame = 0; frame < 120; ++frame) {
    ASSERT_EQ(world.try_send(0, 1, {.bytes = 8}), PostResult::kDone);
    world.network().wait_until_idle();
    world.turn();
  }
  EXPECT_LE(world.verbs(0).work_counts().writes - before, 64u);
  EXPECT_EQ(world.network().counters(0).rnr_waits, 0u);
  world.pause(1, false);
  ASSERT_TRUE(world.settle());
  world.close_all();
}

// Acknowledgements alone must keep a stream going: by bytes where the ring is small, by number
// where it is large and its writes are many.
TEST(Worlds, LongStreamsInBothDirectionsNeverStall) {
  for (const std::size_t ring_bytes : {64 * 1024, 4 * 1024 * 1024}) {
    const LogGuard log;
    WorldShape shape{.ranks = 2};
    shape.options.ring_bytes = ring_bytes;
    World world(std::move(shape));
    for (std::size_t frame = 0; frame < 1500; ++frame) {
      for (const Rank from : {0, 1}) {
        ASSERT_TRUE(world.send(from, 1 - from, {.bytes = frame * 7 % 900}));
      }
    }
    ASSERT_TRUE(world.settle());
    EXPECT_EQ(world.network().counters(0).overflows + world.network().counters(1).overflows, 0u);
    world.close_all();
  }
}

TEST(Worlds, EveryReceiveThatIsUsedIsPostedAgain) {
  const LogGuard log;
  World world;
  for (int round = 0; round < 600; ++round) {
    for (const Rank from : {0, 1}) {
      ASSERT_TRUE(world.send(from, 1 - from, {.bytes = 8}));
      ASSERT_TRUE(world.settle(from, 1 - from));
    }
  }
  EXPECT_EQ(world.network().counters(0).rnr_waits + world.network().counters(1).rnr_waits, 0u);
  world.close_all();
}

TEST(Ending, GoodbyeComesBehindEverythingAndIsNoFailure) {
  const LogGuard log;
  World world;
  ASSERT_TRUE(world.greet());
  for (int frame = 0; frame < 30; ++frame) ASSERT_TRUE(world.send(0, 1, {.bytes = kLarge}));
  std::thread leaving(
      [&] { world.transport(0).close(Clock::now() + std::chrono::seconds(10), world.witness(0)); });
  world.pause(0);
  const Status cause = world.end_of(1, 0);
  leaving.join();
  EXPECT_TRUE(cause.ok()) << cause.message();
  EXPECT_EQ(world.witness(1).count(0), 31u);
  EXPECT_EQ(world.witness(0).tokens_outstanding(), 0u);
  world.close_all();
}

// What a sink answers while its rank closes is sent, too, or its loss is told.
TEST(Ending, AnswersGivenWhileClosingArrive) {
  for (int round = 0; round < 20; ++round) {
    const LogGuard log;
    World world;
    ASSERT_TRUE(world.greet());
    int answers = 0;
    world.witness(0).on_received = [&](Rank, const FrameHeader&) {
      answers += world.try_send(0, 1, {.bytes = 64}) == PostResult::kDone;
    };
    for (int frame = 0; frame < 20; ++frame) ASSERT_TRUE(world.send(1, 0, {.bytes = 64}));
    std::thread leaving([&] {
      world.transport(0).close(Clock::now() + std::chrono::seconds(10), world.witness(0));
    });
    world.pause(0);
    const Status cause = world.end_of(1, 0);
    leaving.join();
    EXPECT_TRUE(cause.ok()) << cause.message();
    EXPECT_EQ(world.witness(1).count(0), static_cast<std::uint64_t>(answers) + 1);
    world.close_all();
  }
}

TEST(Ending, WithAPeerThatNeverPollsItEndsAtTheDeadline) {
  const LogGuard log;
  World world;
  ASSERT_TRUE(world.greet());
  world.pause(1);
  while (world.try_send(0, 1, {.bytes = kLarge}) != PostResult::kFull) {
  }
  const TimePoint deadline = Clock::now() + std::chrono::milliseconds(100);
  world.transport(0).close(deadline, world.witness(0));
  EXPECT_GE(Clock::now(), deadline);
  EXPECT_EQ(world.witness(0).tokens_outstanding(), 0u);
  world.pause(1, false);
  const Status cause = world.end_of(1, 0);
  EXPECT_EQ(cause.code(), ErrorCode::kRankFailed);
  EXPECT_EQ(cause.rank(), 0);
  EXPECT_THAT(cause.message(), HasSubstr("rank 0"));
  world.close_all();
}

TEST(Ending, WhileLinksAreMadeItEndsAtTheDeadlineAndTheLossIsTold) {
  const LogGuard log;
  World world;
  world.pause(1);
  ASSERT_NE(world.try_send(0, 1, {.bytes = 100}), PostResult::kFull);
  world.transport(0).close(Clock::now() + std::chrono::milliseconds(50), world.witness(0));
  world.pause(1, false);
  // Whether the peer has heard of this rank at all depends on the side channel.
  world.turns(200);
  if (world.has_ended(1, 0)) {
    EXPECT_EQ(world.witness(1).closed_cause(0)->code(), ErrorCode::kRankFailed);
  }
  EXPECT_EQ(world.witness(1).count(0), 0u);
  world.close_all();
}

TEST(Ending, OfAPeerThatDiesIsNoticed) {
  LogGuard log;
  log.expect("fake");
  World world({.ranks = 3});
  ASSERT_TRUE(world.greet());
  world.try_send(0, 1, {.bytes = kLarge});
  world.try_send(2, 1, {.bytes = 100});
  world.kill(1);
  for (const Rank rank : {0, 2}) {
    const Status cause = world.end_of(rank, 1);
    EXPECT_EQ(cause.code(), ErrorCode::kRankFailed);
    EXPECT_EQ(cause.rank(), 1);
    EXPECT_THAT(cause.message(), HasSubstr("rank 1"));
  }
  ASSERT_TRUE(world.send(0, 2, {.bytes = kLarge}));
  ASSERT_TRUE(world.settle(0, 2));
  world.close_all();
}

TEST(Ending, OfAPeerThatGoesWhileTheyMeetIsAFailureThatNamesIt) {
  for (const bool with_goodbye : {false, true}) {
    const LogGuard log;
    Impostor impostor(1, 2);
    World world(impostor.shape());
    impostor.join(world);
    world.pause(1);
    ASSERT_EQ(world.try_send(0, 1, {.bytes = kLarge}), PostResult::kPending);
    ASSERT_TRUE(impostor.await_hello(world, 0));
    if (with_goodbye) {
      impostor.leave();
    } else {
      impostor.die();
    }
    const Status cause = world.end_of(0, 1);
    EXPECT_EQ(cause.code(), ErrorCode::kRankFailed);
    EXPECT_EQ(cause.rank(), 1);
    EXPECT_THAT(cause.message(), HasSubstr("rank 1"));
    EXPECT_EQ(world.witness(0).tokens_outstanding(), 0u);
    impostor.fixture.reset();
  }
}

// The goodbye says that a device has the bytes, not that they can be seen. That an immediate says
// that came behind them, or the end of the queue pairs.
TEST(Ending, GoodbyeThatOvertakesTheLastRecordWaitsForIt) {
  for (const bool is_announced : {true, false}) {
    const LogGuard log;
    Impostor impostor(1, 2);
    World world(impostor.shape());
    impostor.join(world);
    world.pause(1);
    ASSERT_TRUE(impostor.meet(world, 0));
    ASSERT_EQ(world.try_send(0, 1, {.bytes = kLarge}), PostResult::kPending);
    impostor.say(0, encode_leaving(kLine));
    world.turns(600);
    EXPECT_FALSE(world.has_ended(0, 1)) << world.witness(0).closed_cause(1)->message();
    FrameHeader header;
    header.reserved = static_cast<std::uint16_t>(RecordKind::kWhole);
    std::memcpy(impostor.fixture->memory.data(), &header, sizeof header);
    const Hello& theirs = impostor.hello_of(0);
    if (is_announced) {
      impostor.write(theirs.ring_address, theirs.ring_keys[0], kLine,
                     encode(ImmediateKind::kWritten, 1));
    } else {
      impostor.write(theirs.ring_address, theirs.ring_keys[0], kLine);
      world.network().wait_until_idle();
      world.turns(2);
      EXPECT_EQ(world.witness(0).count(1), 0u);
      EXPECT_EQ(world.cancel_all(0, 1), 1u);  // which destroys them
    }
    EXPECT_TRUE(world.pump_until([&] { return world.witness(0).count(1) == 1; }, "the record"));
    impostor.leave();
    const Status cause = world.end_of(0, 1);
    EXPECT_TRUE(cause.ok()) << cause.message();
    impostor.fixture.reset();
  }
}

// Who comes late looks once more, and takes all that is there.
TEST(Ending, GoodbyeOutlastsARankThatDoesNotRunForLong) {
  constexpr std::uint32_t kRecords = 192;
  constexpr std::size_t kAtOnce = 32;
  const LogGuard log;
  Impostor impostor(1, 3);
  World world(impostor.shape());
  impostor.join(world);
  world.pause(2);
  ASSERT_TRUE(impostor.meet(world, 0));
  // It waits for rank 2, so that each poll looks at the side channel.
  ASSERT_EQ(world.try_send(0, 2, {.bytes = 8}), PostResult::kDone);
  impostor.say(0, encode_leaving(kRecords * kLine));
  impostor.leave();
  for (int polls = 0; polls < 20; ++polls) world.poll(0);
  for (std::uint32_t i = 0; i < kRecords; ++i) {
    FrameHeader header;
    header.reserved = static_cast<std::uint16_t>(RecordKind::kWhole);
    header.sequence = i;
    std::memcpy(impostor.fixture->memory.data() + i * kLine, &header, sizeof header);
  }
  const Hello& theirs = impostor.hello_of(0);
  ASSERT_GE(theirs.immediates, kRecords);
  impostor.write(theirs.ring_address, theirs.ring_keys[0], kRecords * kLine);
  impostor.fixture->poll(1);
  for (std::uint32_t i = 1; i <= kRecords; ++i) {
    impostor.immediate(encode(ImmediateKind::kWritten, i));
    if (i % kAtOnce == 0) impostor.fixture->poll(kAtOnce);
  }
  world.network().wait_until_idle();
  std::this_thread::sleep_for(kLongerThanAnyPatience);
  const Status cause = world.end_of(0, 1);
  EXPECT_TRUE(cause.ok()) << cause.message();
  EXPECT_EQ(world.witness(0).count(1), kRecords);
  impostor.fixture.reset();
}

/// Is kept busy by what comes from one rank.
class BusySink final : public FrameSink {
 public:
  BusySink(FrameSink& sink, Rank by, std::function<void()> work)
      : sink_(sink), by_(by), work_(std::move(work)) {}
  bool was_busy = false;

  Placement place(Rank peer, const FrameHeader& header) override {
    return sink_.place(peer, header);
  }
  void deliver(Rank peer, const FrameHeader& header, std::size_t offset,
               std::span<const std::byte> piece) override {
    sink_.deliver(peer, header, offset, piece);
  }
  void received(Rank peer, const FrameHeader& header) override {
    sink_.received(peer, header);
    if (peer == by_ && !std::exchange(was_busy, true)) work_();
  }
  void sent(Rank peer, std::uint64_t token) override { sink_.sent(peer, token); }
  void closed(Rank peer, const Status& cause) override { sink_.closed(peer, cause); }

 private:
  FrameSink& sink_;
  Rank by_;
  std::function<void()> work_;
};

// What comes after a poll has looked is seen by the next one, though the wait is over.
TEST(Ending, GoodbyeOutlastsAPollThatTakesLong) {
  const LogGuard log;
  Impostor impostor(1, 3);
  World world(impostor.shape());
  impostor.join(world);
  ASSERT_TRUE(world.send(2, 0, {.bytes = 8}));
  ASSERT_TRUE(world.settle(2, 0));  // whose link has its turn first from now on
  ASSERT_TRUE(impostor.meet(world, 0));
  impostor.say(0, encode_leaving(kLine));
  impostor.leave();
  for (int polls = 0; polls < 600; ++polls) world.poll(0);  // the wait begins
  FrameHeader header;
  header.reserved = static_cast<std::uint16_t>(RecordKind::kWhole);
  std::memcpy(impostor.fixture->memory.data(), &header, sizeof header);
  BusySink busy(world.witness(0), 2, [&] {
    const Hello& theirs = impostor.hello_of(0);
    impostor.write(theirs.ring_address, theirs.ring_keys[0], kLine,
                   encode(ImmediateKind::kWritten, 1));
    world.network().wait_until_idle();
    std::this_thread::sleep_for(kLongerThanAnyPatience);
  });
  ASSERT_TRUE(world.send(2, 0, {.bytes = 8}));
  world.network().wait_until_idle();
  for (int polls = 0; polls < 20; ++polls) world.verbs(0).poll(busy);
  EXPECT_TRUE(busy.was_busy);
  const Status cause = world.end_of(0, 1);
  EXPECT_TRUE(cause.ok()) << cause.message();
  EXPECT_EQ(world.witness(0).count(1), 1u);
  impostor.fixture.reset();
}

// Whose end never comes ends all the same, whatever others send meanwhile.
TEST(Ending, GoodbyeIsNotWaitedForWhileOthersSend) {
  const LogGuard log;
  Impostor impostor(1, 3);
  World world(impostor.shape());
  impostor.join(world);
  ASSERT_TRUE(impostor.meet(world, 0));
  ASSERT_TRUE(world.send(2, 0, {.bytes = 8}));
  ASSERT_TRUE(world.settle(2, 0));
  impostor.say(0, encode_leaving(kLine));
  impostor.leave();
  const auto joined = std::exchange(world.stranger, nullptr);
  world.stranger = [&] {
    joined();
    for (int frame = 0; frame < 64; ++frame) world.try_send(2, 0, {.bytes = 8});
    world.network().wait_until_idle();
  };
  const Status cause = world.end_of(0, 1);
  EXPECT_EQ(cause.code(), ErrorCode::kRankFailed);
  EXPECT_EQ(cause.rank(), 1);
  EXPECT_THAT(cause.message(), HasSubstr("the end of what it sent did not come"));
  impostor.fixture.reset();
}

TEST(Ending, OfAPeerWhoseLastWordsThisRanksDeviceLostNamesThisRank) {
  const LogGuard log;
  Impostor impostor(1, 2);
  World world(impostor.shape());
  impostor.join(world);
  ASSERT_TRUE(impostor.meet(world, 0));
  impostor.say(0, encode_leaving(kLine));
  impostor.leave();
  world.network().break_device(0, 0);
  const Status cause = world.end_of(0, 1);
  EXPECT_EQ(cause.code(), ErrorCode::kSystem);
  EXPECT_EQ(cause.rank(), 0);
  EXPECT_THAT(cause.message(), AllOf(HasSubstr("rank 1 left"), HasSubstr("fake0 port 1: "),
                                     HasSubstr("DEVICE_FATAL")));
  impostor.fixture.reset();
}

TEST(Ending, PostsToALinkThatEndedAreDropped) {
  LogGuard log;
  World world;
  ASSERT_TRUE(world.greet());
  world.network().unplug(1);
  ASSERT_TRUE(world.send(0, 1, {.bytes = 8}));
  EXPECT_FALSE(world.end_of(0, 1).ok());
  for (int frame = 0; frame < 100; ++frame) {
    EXPECT_EQ(world.try_send(0, 1, {.bytes = kLarge}), PostResult::kDone);
  }
  world.turns(10);
  world.close_all();
  EXPECT_EQ(world.try_send(0, 1, {.bytes = 8}), PostResult::kDone);
  EXPECT_FALSE(world.transport(0).poll(world.witness(0)));
}

TEST(Ending, TransportThatIsDestroyedInTheMiddleLeavesNothing) {
  for (int turns = 0; turns < 40; turns += 3) {
    LogGuard log;
    log.expect("fake");
    World world({.ranks = 2, .ports = 2});
    if (turns > 0) {
      ASSERT_TRUE(world.greet());
    }
    for (int frame = 0; frame < 10; ++frame) world.try_send(0, 1, {.bytes = kLarge});
    world.turns(turns);
    // The destructor of the world destroys all without closing, and looks what is left.
  }
}

}  // namespace
}  // namespace unisono::verbs::test
