// Ranks without host memory at the worst moment: cancel() and abandon() do not throw, and an epoch
// that could not begin begins with a later poll.
#include <gtest/gtest.h>

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "tests/support/refused_allocation.h"
#include "tests/support/watchdog.h"
#include "tests/verbs/transport_fixture.h"

namespace unisono::verbs::test {
namespace {

using unisono::test::allocations;
using unisono::test::is_sanitized;
using unisono::test::refused_allocation;
using unisono::test::refused_from;

constexpr std::uint64_t kAllocationsMax = 2000;

/// Does `work` with its `nth` allocation refused. False: it made fewer.
template <typename Work>
bool is_refused_one(std::uint64_t nth, const Work& work) {
  refused_allocation = allocations + nth;
  work();
  return allocations >= std::exchange(refused_allocation, 0);
}

/// False: it was out of memory.
bool poll(World& world, Rank rank) {
  try {
    world.poll(rank);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

/// Rank 1 cannot read the large frame that rank 0 has lent it.
bool begin_held_read(World& world) {
  if (!world.greet()) return false;
  world.network().hold(1);
  return world.send(0, 1, {.bytes = kLarge}) &&
         world.pump_until([&] { return world.verbs(1).work_counts().reads > 0; }, "a read");
}

/// Rank 1's hello, of the first epoch or the second, is on its way to rank 0.
bool begin_meeting(World& world, bool is_first) {
  if (is_first) {
    if (!world.stands()) return false;
    for (const int bytes : {8, 8}) world.send(0, 1, {.bytes = static_cast<std::size_t>(bytes)});
  } else if (!begin_held_read(world) || world.cancel_all(0, 1) != 1) {
    return false;
  }
  const std::uint64_t epoch = is_first ? 1 : 2;
  return world.pump_until([&] { return world.verbs(1).work_counts().epochs == epoch; }, "a hello");
}

/// The second frame comes, or the link ends at all of `ending`.
void expect_frame_or_end(World& world, std::uint64_t nth,
                         const std::vector<Rank>& ending = {0, 1}) {
  world.network().release(1);
  const auto has_ended = [&](Rank rank) { return world.has_ended(rank, 1 - rank); };
  const auto is_over = [&] {
    return world.witness(1).count(0) == 2 || std::all_of(ending.begin(), ending.end(), has_ended);
  };
  EXPECT_TRUE(world.pump_until(is_over, "the frame or an end")) << "allocation " << nth;
  world.close_all();
}

/// Runs `act` in a new world for each allocation in turn, until it returns that it made fewer.
/// False of `prepare`: there is nothing to run it for.
template <typename Prepare, typename Act>
void refuse_each(const WorldShape& shape, const Prepare& prepare, const Act& act) {
  bool refused = true;
  for (std::uint64_t nth = 1; refused && !testing::Test::HasFailure(); ++nth) {
    LogGuard log;
    log.expect("");
    World world(shape);
    ASSERT_TRUE(prepare(world));
    refused = act(world, nth);
    ASSERT_LT(nth, kAllocationsMax);
  }
}

TEST(Memory, LacksWhileAFrameIsCancelled) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  refuse_each({}, begin_held_read, [](World& world, std::uint64_t nth) {
    const bool refused = is_refused_one(nth, [&] { EXPECT_NO_THROW(world.cancel_all(0, 1)); });
    expect_frame_or_end(world, nth);
    return refused;
  });
}

TEST(Memory, LacksWhileAPlaceIsAbandoned) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  refuse_each({}, begin_held_read, [](World& world, std::uint64_t nth) {
    const std::span<std::byte> memory = world.witness(1).memory_in_use(0);
    Endpoint& endpoint = world.verbs(1).endpoint(0);
    const bool refused = is_refused_one(
        nth, [&] { EXPECT_NO_THROW(endpoint.abandon(memory.data(), memory.size())); });
    world.witness(1).expect_abandoned(0);
    expect_frame_or_end(world, nth);
    return refused;
  });
}

TEST(Memory, LacksWhenAnEpochBegins) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  refuse_each({}, begin_held_read, [](World& world, std::uint64_t nth) {
    EXPECT_EQ(world.cancel_all(0, 1), 1u);
    const bool refused = is_refused_one(nth, [&] { poll(world, 0); });
    expect_frame_or_end(world, nth);
    return refused;
  });
}

TEST(Memory, LacksWhenTwoRanksMeet) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  struct Case {
    bool is_first, asks_for_paths;
  };
  for (const Case& each : {Case{true, false}, Case{false, false}, Case{false, true}}) {
    WorldShape shape;
    if (each.asks_for_paths) shape.askers = {0, 1};
    const auto meet = [&](World& world) { return begin_meeting(world, each.is_first); };
    refuse_each(shape, meet, [&](World& world, std::uint64_t nth) {
      const bool refused = is_refused_one(nth, [&] { poll(world, 0); });
      expect_frame_or_end(world, nth, {0});
      return refused;
    });
  }
}

// The peer takes a hello whose epoch runs far ahead for nonsense.
TEST(Memory, LacksForLongAndTheNextEpochIsStillTheSecond) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  constexpr int kTries = 1500;
  LogGuard log;
  log.expect("");
  World world;
  ASSERT_TRUE(begin_held_read(world));
  const std::span<std::byte> memory = world.witness(1).memory_in_use(0);
  Endpoint& endpoint = world.verbs(1).endpoint(0);
  int refused = 0;
  refused_from = allocations + 1;
  endpoint.abandon(memory.data(), memory.size());
  for (int tries = 0; tries < kTries; ++tries) refused += poll(world, 1) ? 0 : 1;
  refused_from = 0;
  EXPECT_EQ(refused, kTries);
  world.witness(1).expect_abandoned(0);
  world.network().release(1);
  EXPECT_TRUE(world.send(0, 1, {.bytes = 8}));
  EXPECT_TRUE(world.settle(0, 1));
  EXPECT_EQ(world.verbs(1).work_counts().epochs, 2u);
  world.close_all();
}

}  // namespace
}  // namespace unisono::verbs::test
