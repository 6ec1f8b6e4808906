// GPUDirect: messages in the memory of devices. The host's instructions cannot reach it, so a
// transport that tries dies with the test.
#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "tests/verbs/direct_memory_double.h"
#include "tests/verbs/message_pair.h"

namespace unisono::verbs::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::size_t kMessage = 3 * kFramePayloadMax + 1000;

void fill(std::byte* bytes, std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::generate_n(bytes, count, [&] { return static_cast<std::byte>(random()); });
}

bool are_equal(const std::byte* left, const std::byte* right, std::size_t bytes) {
  return std::memcmp(left, right, bytes) == 0;
}

/// Offered for the length of a test.
class Memory {
 public:
  explicit Memory(std::size_t bytes, const void* at = nullptr)
      : memory_(DirectMemoryDouble::offer(bytes, at)) {}
  ~Memory() { withdraw_direct_memory(*memory_); }
  DirectMemoryDouble* operator->() const { return memory_.get(); }
  std::span<const std::byte> bytes() const { return memory_->bytes(); }

 private:
  std::shared_ptr<DirectMemoryDouble> memory_;
};

TEST(Direct, LargeFramesAreReadAndWrittenWhereTheyLie) {
  Memory source(kMessage + 300);
  Memory target(kMessage + 300);
  Pair pair;
  ASSERT_TRUE(pair.world.transport(0).admits_direct(1, kMessage));
  const auto made = [&](Rank rank) { return pair.world.verbs(rank).registration_counts().made; };
  const std::uint64_t made_before[] = {made(0), made(1)};
  for (unsigned round = 0; round < 4; ++round) {
    fill(source->view(), kMessage + 300, round);
    // At no page's beginning.
    ASSERT_TRUE(pair.carry(source->begin() + 100 + round, target->begin() + 200, kMessage));
    EXPECT_TRUE(are_equal(source->view() + 100 + round, target->view() + 200, kMessage));
  }
  // The last thousand bytes of a message are too few to be read.
  EXPECT_EQ(source->copied_bytes(), 4 * 1000u);
  EXPECT_EQ(target->copied_bytes(), 4 * 1000u);
  EXPECT_EQ(pair.world.verbs(0).work_counts().staged_bytes, 0u);
  EXPECT_EQ(pair.world.verbs(1).work_counts().staged_bytes, 0u);
  EXPECT_EQ(made(0), made_before[0] + 1) << "one registration, of the first message";
  EXPECT_EQ(made(1), made_before[1] + 1);
  pair.world.close_all();
}

TEST(Direct, EitherEndMayBeTheHosts) {
  Memory device(kMessage);
  std::vector<std::byte> host(kMessage);
  Pair pair;
  fill(device->view(), kMessage, 1);
  ASSERT_TRUE(pair.carry(device->begin(), host.data(), kMessage));
  EXPECT_TRUE(are_equal(device->view(), host.data(), kMessage));
  fill(host.data(), kMessage, 2);
  ASSERT_TRUE(pair.carry(host.data(), device->begin(), kMessage));
  EXPECT_TRUE(are_equal(device->view(), host.data(), kMessage));
  pair.world.close_all();
}

// Only the first message finds out; then nothing is tried again, and the host's registrations stay.
TEST(Direct, WhatCannotBeRegisteredIsCopiedOnceAndRefusedThen) {
  Memory source(kMessage);
  Memory target(kMessage);
  Pair pair;
  std::vector<std::byte> host(kMessage);
  ASSERT_TRUE(pair.carry(host.data(), host.data(), kMessage));
  const auto& counts = pair.world.verbs(0).registration_counts();
  const std::uint64_t pushed_out = counts.pushed_out;
  for (const int rank : {0, 1}) {
    pair.world.network().fail_calls_from(rank, FakeCall::kRegDmabufMr, 1, EOPNOTSUPP);
  }
  fill(source->view(), kMessage, 1);
  ASSERT_TRUE(pair.carry(source->begin(), target->begin(), kMessage));
  EXPECT_TRUE(are_equal(source->view(), target->view(), kMessage));
  EXPECT_EQ(source->copied_bytes(), kMessage);
  EXPECT_EQ(target->copied_bytes(), kMessage);
  EXPECT_EQ(source->dma_bufs(), 1) << "the other pieces are not tried";
  EXPECT_EQ(counts.pushed_out, pushed_out);
  const Status refused = pair.world.transport(0).admits_direct(1, kMessage);
  EXPECT_EQ(refused.code(), ErrorCode::kUnsupported) << refused.message();
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("ibv_reg_dmabuf_mr"), HasSubstr("fake0 port 1")));
  pair.world.close_all();
}

TEST(Direct, FailedCopyIsNotedWhereItsOwnerLooks) {
  Memory source(1000);
  Memory other(1000);
  Pair pair;
  std::vector<std::byte> host(1000);
  source->refuse(Status(ErrorCode::kSystem, "copying failed"));
  ASSERT_TRUE(pair.carry(source->begin(), host.data(), 1000));
  EXPECT_EQ(source->failure().message(), "copying failed");
  EXPECT_TRUE(other->failure());
  pair.world.close_all();
}

TEST(Direct, PortThatGoesDownMeanwhileLosesNothing) {
  Memory source(kMessage);
  Memory target(kMessage);
  for (unsigned seed = 1; seed <= 6; ++seed) {
    LogGuard log;
    log.expect("fake");
    WorldShape shape{.ranks = 2, .ports = 2};
    shape.network.seed = seed;
    shape.network.piece_bytes_max = 8 * 1024;
    Pair pair(std::move(shape));
    fill(source->view(), kMessage, seed);
    pair.takers[1].expect(target->begin(), kMessage);
    ASSERT_TRUE(pair.post(source->begin(), kMessage));
    for (unsigned turn = 0; turn < seed; ++turn) pair.turn();
    pair.world.network().set_link(static_cast<int>(seed % 2), 0, false);
    ASSERT_TRUE(pair.pump_until([&] {
      return pair.takers[1].is_whole() && pair.takers[0].is_idle();
    })) << "seed "
        << seed;
    EXPECT_TRUE(are_equal(source->view(), target->view(), kMessage)) << "seed " << seed;
    pair.world.close_all();
  }
}

TEST(Direct, CancelledMessageIsKeptByACopy) {
  Memory source(kMessage);
  Memory target(kMessage);
  Pair pair;
  fill(source->view(), kMessage, 1);
  std::vector<std::byte> as_sent(source->view(), source->view() + kMessage);
  pair.takers[1].expect(target->begin(), kMessage);
  ASSERT_TRUE(pair.post(source->begin(), kMessage));
  pair.world.transport(0).endpoint(1).cancel(Pair::kToken);
  fill(source->view(), kMessage, 2);
  ASSERT_TRUE(pair.pump_until([&] { return pair.takers[1].is_whole(); }));
  EXPECT_TRUE(are_equal(as_sent.data(), target->view(), kMessage));
  pair.world.close_all();
}

TEST(Direct, AddressesThatAreGivenOutAnewAreRegisteredAnew) {
  Pair pair;
  const auto& counts = pair.world.verbs(0).registration_counts();
  std::vector<std::byte> host(kMessage);
  const void* address = nullptr;
  for (unsigned round = 0; round < 3; ++round) {
    Memory device(kMessage, address);
    address = device->begin();
    fill(device->view(), kMessage, round);
    ASSERT_TRUE(pair.carry(device->begin(), host.data(), kMessage));
    EXPECT_TRUE(are_equal(device->view(), host.data(), kMessage)) << "of the memory before";
    EXPECT_EQ(counts.invalidated, round);
  }
  pair.world.close_all();
}

TEST(Direct, IsRefusedWithTheReason) {
  LogGuard log;
  log.expect("rank 2");
  WorldShape shape{.ranks = 3, .ports = 1, .plain = {2}};
  shape.options.registered_bytes_max = std::size_t{1} << 20;
  World world(std::move(shape));
  ASSERT_TRUE(world.stands());
  EXPECT_TRUE(world.transport(0).admits_direct(1, std::size_t{1} << 20));
  const Status too_much = world.transport(0).admits_direct(1, (std::size_t{1} << 20) + 1);
  EXPECT_EQ(too_much.code(), ErrorCode::kOutOfResources);
  EXPECT_THAT(too_much.message(),
              AllOf(HasSubstr("UNISONO_VERBS_REGISTERED"), HasSubstr("1048576")));
  const Status over_tcp = world.transport(0).admits_direct(2, 1000);
  EXPECT_EQ(over_tcp.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(over_tcp.message(), AllOf(HasSubstr("rank 2"), HasSubstr("TCP")));
  EXPECT_EQ(world.transport(2).admits_direct(0, 1000).code(), ErrorCode::kUnsupported);
  world.close_all();
}

}  // namespace
}  // namespace unisono::verbs::test
