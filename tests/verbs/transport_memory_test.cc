// Ranks without host memory at the worst moment: cancel() and abandon() do not throw, and an epoch
// that could not begin begins with a later poll.
#include <gtest/gtest.h>

#include <new>
#include <utility>

#include "tests/support/refused_allocation.h"
#include "tests/support/watchdog.h"
#include "tests/verbs/transport_fixture.h"

namespace unisono::verbs::test {
namespace {

using unisono::test::allocations;
using unisono::test::is_sanitized;
using unisono::test::refused_allocation;

constexpr std::uint64_t kAllocationsMax = 2000;

/// Does `work` with its `nth` allocation refused. False: it made fewer.
template <typename Work>
bool is_refused_one(std::uint64_t nth, const Work& work) {
  refused_allocation = allocations + nth;
  work();
  return allocations >= std::exchange(refused_allocation, 0);
}

/// Rank 1 cannot read the large frame that rank 0 has lent it.
bool begin_held_read(World& world) {
  if (!world.greet()) return false;
  world.network().hold(1);
  return world.send(0, 1, {.bytes = kLarge}) &&
         world.pump_until([&] { return world.verbs(1).work_counts().reads > 0; }, "a read");
}

void expect_frame_or_end(World& world, std::uint64_t nth) {
  world.network().release(1);
  const auto is_over = [&] {
    return world.witness(1).count(0) == 2 || (world.has_ended(0, 1) && world.has_ended(1, 0));
  };
  EXPECT_TRUE(world.pump_until(is_over, "the frame or an end")) << "allocation " << nth;
  world.close_all();
}

TEST(Memory, LacksWhileAFrameIsCancelled) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  bool refused = true;
  for (std::uint64_t nth = 1; refused && !testing::Test::HasFailure(); ++nth) {
    LogGuard log;
    log.expect("");
    World world;
    ASSERT_TRUE(begin_held_read(world));
    refused = is_refused_one(nth, [&] { EXPECT_NO_THROW(world.cancel_all(0, 1)); });
    expect_frame_or_end(world, nth);
    ASSERT_LT(nth, kAllocationsMax);
  }
}

TEST(Memory, LacksWhileAPlaceIsAbandoned) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  bool refused = true;
  for (std::uint64_t nth = 1; refused && !testing::Test::HasFailure(); ++nth) {
    LogGuard log;
    log.expect("");
    World world;
    ASSERT_TRUE(begin_held_read(world));
    const std::span<std::byte> memory = world.witness(1).memory_in_use(0);
    Endpoint& endpoint = world.verbs(1).endpoint(0);
    refused = is_refused_one(
        nth, [&] { EXPECT_NO_THROW(endpoint.abandon(memory.data(), memory.size())); });
    world.witness(1).expect_abandoned(0);
    expect_frame_or_end(world, nth);
    ASSERT_LT(nth, kAllocationsMax);
  }
}

TEST(Memory, LacksWhenAnEpochBegins) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  bool refused = true;
  for (std::uint64_t nth = 1; refused && !testing::Test::HasFailure(); ++nth) {
    LogGuard log;
    log.expect("");
    World world;
    ASSERT_TRUE(begin_held_read(world));
    EXPECT_EQ(world.cancel_all(0, 1), 1u);
    refused = is_refused_one(nth, [&] {
      try {
        world.poll(0);
      } catch (const std::bad_alloc&) {
      }
    });
    expect_frame_or_end(world, nth);
    ASSERT_LT(nth, kAllocationsMax);
  }
}

}  // namespace
}  // namespace unisono::verbs::test
