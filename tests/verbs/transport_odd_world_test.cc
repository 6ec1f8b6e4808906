// Devices and moments that a rack of equal machines does not show: short queues, unlike ports, a
// device that is lost for good, queue pairs remade at the wrong moment.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/verbs/transport_fixture.h"

namespace unisono::verbs::test {
namespace {

using unisono::test::LogGuard;

// A side transport that counts how often it is asked for what costs a look at every peer.
class CountingSide final : public Transport {
 public:
  explicit CountingSide(int* asked) : asked_(asked) {}

  std::string_view name() const override { return "counting"; }
  EndpointTraits traits() const override { return {}; }
  std::string address() const override { return ""; }
  Status set_peers(std::vector<std::string>) override { return {}; }
  Endpoint& endpoint(Rank) override { std::abort(); }
  bool poll(FrameSink&) override { return false; }
  bool has_unsent() const override {
    ++*asked_;
    return false;
  }
  void close(TimePoint, FrameSink&) override {}

 private:
  int* asked_;
};

TEST(Polling, LooksAtNoPeerOfTheSideTransport) {
  FakeFabric network(fake_world(1, 1));
  int asked = 0;
  auto made = VerbsTransport::make(network.api(0), {}, std::make_unique<CountingSide>(&asked));
  ASSERT_TRUE(made.has_value()) << made.error().message();
  Recorder sink;
  for (int poll = 0; poll < 100; ++poll) (*made)->poll(sink);
  EXPECT_EQ(asked, 0);
  EXPECT_FALSE((*made)->has_unsent());
  EXPECT_EQ(asked, 1);
}

void expect_stream_in_one_direction(World& world) {
  ASSERT_TRUE(world.greet());
  for (int frame = 0; frame < 100; ++frame) {
    ASSERT_TRUE(world.send(0, 1, {.bytes = 8})) << frame;
    world.turns(5);
  }
  EXPECT_TRUE(world.settle());
}

class SendQueue : public testing::TestWithParam<int> {};

TEST_P(SendQueue, HoweverShortCarriesAStreamInOneDirection) {
  const LogGuard log;
  FakeDeviceOptions device;
  device.qp_entries_max = GetParam();
  WorldShape shape{.ranks = 2};
  shape.network.hosts = fake_world(2, 1, device).hosts;
  World world(std::move(shape));
  expect_stream_in_one_direction(world);
}

INSTANTIATE_TEST_SUITE_P(Entries, SendQueue, testing::Values(4, 8, 12, 15, 16, 20));

TEST(Credit, IsGivenByThePoorestPortAndReturnedInTime) {
  const LogGuard log;
  WorldShape shape{.ranks = 2};
  shape.network.hosts = fake_world(2, 2).hosts;
  for (auto& host : shape.network.hosts) host[1].srq_entries_max = 64;
  World world(std::move(shape));
  expect_stream_in_one_direction(world);
}

// As bnxt_re does it: the errno that is there is of some earlier call.
TEST(InlineData, IsAskedForInSmallerSizesWhereTheProviderDoesNotSayWhyItRefuses) {
  const LogGuard log;
  FakeDeviceOptions device;
  device.inline_bytes_max = 200;
  device.refuses_sizes_silently = true;
  WorldShape shape{.ranks = 2};
  shape.network.hosts = fake_world(2, 1, device).hosts;
  World world(std::move(shape));
  errno = EAGAIN;
  ASSERT_TRUE(world.greet());
  EXPECT_GT(world.network().counters(0).inlined, 0u);
}

TEST(LostDevice, DoesNotSpoilNewLinksAndRegistrations) {
  LogGuard log;
  log.expect("");
  World world({.ranks = 3, .ports = 2});
  ASSERT_TRUE(world.send(0, 1, {.bytes = 8}));
  ASSERT_TRUE(world.settle(0, 1));
  world.network().break_device(0, 0);
  for (int frame = 0; frame < 20; ++frame) ASSERT_TRUE(world.send(0, 1, {.bytes = 200000}));
  ASSERT_TRUE(world.settle(0, 1));
  const std::uint64_t copied = world.verbs(0).work_counts().staged_bytes;
  for (int frame = 0; frame < 20; ++frame) ASSERT_TRUE(world.send(0, 1, {.bytes = 200000}));
  ASSERT_TRUE(world.settle(0, 1));
  EXPECT_EQ(world.verbs(0).work_counts().staged_bytes, copied)
      << "once the device is known to be lost, buffers are registered with the other";
  ASSERT_TRUE(world.send(0, 2, {.bytes = 8}));
  EXPECT_TRUE(world.settle(0, 2)) << "a link made later";
}

TEST(PortEvents, AreSeenBesideAPeerWithoutVerbs) {
  LogGuard log;
  log.expect("leaves");
  WorldShape shape{.ranks = 3, .ports = 2};
  shape.plain = {2};
  World world(std::move(shape));
  for (const Rank peer : {1, 2}) {
    ASSERT_TRUE(world.send(0, peer, {.bytes = 8}));
    ASSERT_TRUE(world.settle(0, peer));
  }
  const std::uint64_t before = world.verbs(0).work_counts().epochs;
  world.network().set_link(0, 1, false);
  EXPECT_TRUE(world.pump_until([&] { return world.verbs(0).work_counts().epochs > before; },
                               "the link to leave the port"));
}

// Rank 1 remakes its queue pairs again and again while completions of receives wait unseen.
TEST(Receives, AreGivenBackWhenQueuePairsAreDestroyed) {
  for (const bool forget : {false, true}) {
    const LogGuard log;
    WorldShape shape{.ranks = 2};
    shape.network.forget_completions_of_destroyed = forget;
    World world(std::move(shape));
    ASSERT_TRUE(world.greet());
    for (int round = 0; round < 8; ++round) {
      world.network().hold(0);  // so that rank 1's large frame stays exposed
      ASSERT_TRUE(world.send(1, 0, {.bytes = 200000}));
      world.turns(10);
      world.network().release(0);
      world.pause(1);
      for (int frame = 0; frame < 60; ++frame) {
        world.try_send(0, 1, {.bytes = 8});
        world.turn();
      }
      world.network().wait_until_idle();
      world.cancel_all(1, 0);
      world.pause(1, false);
      ASSERT_TRUE(world.pump_until(
          [&] { return world.witness(1).count(0) >= world.sent(0, 1) || world.has_ended(0, 1); },
          "all frames"));
      ASSERT_FALSE(world.has_ended(0, 1)) << "round " << round;
    }
  }
}

TEST(Sink, MayCancelWhileItIsAskedForAPlace) {
  const LogGuard log;
  World world;
  ASSERT_TRUE(world.greet());
  ASSERT_EQ(world.try_send(0, 1, {.bytes = 200000}), PostResult::kPending);
  world.poll(0);
  world.network().wait_until_idle();
  ASSERT_TRUE(world.send(1, 0, {.bytes = 8}));
  world.network().wait_until_idle();
  bool cancelled = false;
  world.witness(0).choose_placement = [&](const FrameHeader&) {
    if (!std::exchange(cancelled, true)) world.cancel_all(0, 1);
    return Placement::Kind::kInto;
  };
  EXPECT_TRUE(world.settle(1, 0)) << "and the frame is handed over once";
  EXPECT_TRUE(cancelled);
}

TEST(Network, OfAnotherRoceVersionOrAddressFamilyIsReachedOverTcp) {
  ibv_gid ipv6{};
  ipv6.raw[0] = 0xfd;
  ipv6.raw[15] = 7;
  for (const FakeGid& gid : {FakeGid{ipv4_gid(10, 0, 0, 99), IBV_GID_TYPE_ROCE_V1},
                             FakeGid{ipv6, IBV_GID_TYPE_ROCE_V2}}) {
    LogGuard log;
    log.expect("is reached over TCP");
    WorldShape shape{.ranks = 2};
    shape.network.hosts = fake_world(2, 1).hosts;
    shape.network.hosts[1][0].gids = {gid};
    World world(std::move(shape));
    ASSERT_TRUE(world.send(0, 1, {.bytes = 8}));
    EXPECT_TRUE(world.settle(0, 1));
    EXPECT_EQ(world.network().counters(0).qps, 0);
  }
}

// The hosts have one network in common, by one port each.
TEST(Network, OfAnotherRoceVersionIsNotPairedBesideOneThatFits) {
  const LogGuard log;
  WorldShape shape{.ranks = 2};
  shape.network.hosts = fake_world(2, 2).hosts;
  shape.network.hosts[1][1].gids = {{ipv4_gid(10, 1, 0, 99), IBV_GID_TYPE_ROCE_V1}};
  World world(std::move(shape));
  ASSERT_TRUE(world.greet());
  for (const int host : {0, 1}) EXPECT_EQ(world.network().counters(host).qps, 1);
}

// Rank 0's last frame lies in rank 1's ring when rank 1, which has not looked, remakes its queue
// pairs; rank 0 has gone by then.
TEST(Goodbye, DoesNotLoseWhatHadArrivedBeforeQueuePairsWereRemade) {
  for (const bool forget : {false, true}) {
    const LogGuard log;
    WorldShape shape{.ranks = 2};
    shape.network.forget_completions_of_destroyed = forget;
    World world(std::move(shape));
    ASSERT_TRUE(world.greet());
    ASSERT_TRUE(world.send(1, 0, {.bytes = 200000}));
    world.poll(1);
    world.pause(1);
    ASSERT_TRUE(world.pump_until([&] { return world.witness(0).count(1) == 2; }, "a large frame"));
    world.turns(20);
    ASSERT_TRUE(world.send(0, 1, {.bytes = 8}));
    world.transport(0).close(Clock::now() + std::chrono::seconds(5), world.witness(0));
    EXPECT_EQ(world.cancel_all(1, 0), 1u);
    world.pause(1, false);
    const Status end = world.end_of(1, 0);
    EXPECT_TRUE(end.ok()) << end.message();
    EXPECT_EQ(world.witness(1).count(0), 2u);
  }
}

TEST(QueuePairs, AreSpreadOverAllPortsBeforeAPortHasMany) {
  LogGuard log;
  log.expect("leaves");
  WorldShape shape{.ranks = 2, .ports = 4};
  shape.options.queue_pairs = 16;
  World world(std::move(shape));
  ASSERT_TRUE(world.greet());
  ASSERT_EQ(world.network().counters(0).qps, static_cast<int>(kQueuePairsMax));
  world.network().set_link(0, 0, false);
  world.turns(1000);
  ASSERT_TRUE(world.send(0, 1, {.bytes = 8}));
  EXPECT_TRUE(world.settle(0, 1));
}

}  // namespace
}  // namespace unisono::verbs::test
