// Buffers that are lent: how often they are registered, copied and announced, and that nobody
// touches them once they are the caller's again.
#include <gmock/gmock.h>

#include <algorithm>
#include <string>

#include "tests/support/seed.h"
#include "tests/verbs/transport_fixture.h"

namespace unisono::verbs::test {
namespace {

constexpr std::byte kMine{0xab};

// Takes messages of frames into one buffer, as an engine does that repeats a call.
class OneBuffer final : public FrameSink {
 public:
  explicit OneBuffer(std::size_t bytes) : memory(bytes) {}
  Placement place(Rank, const FrameHeader& header) override {
    return {Placement::Kind::kInto, memory.data() + header.offset};
  }
  void deliver(Rank, const FrameHeader&, std::size_t, std::span<const std::byte>) override {
    ADD_FAILURE();
  }
  void received(Rank, const FrameHeader&) override { ++frames; }
  void sent(Rank, std::uint64_t) override { ++tokens; }
  void closed(Rank, const Status& cause) override { ADD_FAILURE() << cause.message(); }

  std::vector<std::byte> memory;
  int frames = 0;
  int tokens = 0;
};

constexpr int kPieces = 4;

// One message of kPieces frames from rank 0 to rank 1, to its end.
void repeat(World& world, OneBuffer* from, OneBuffer* into) {
  const int frames = into->frames + kPieces;
  const int tokens = from->tokens + kPieces;
  for (int piece = 0; piece < kPieces; ++piece) {
    FrameHeader header;
    header.kind = FrameKind::kData;
    header.payload_bytes = kFramePayloadMax;
    header.offset = static_cast<std::uint64_t>(piece) * kFramePayloadMax;
    header.total_bytes = kPieces * kFramePayloadMax;
    EXPECT_EQ(world.verbs(0).endpoint(1).post_send(
                  header, std::span(from->memory).subspan(header.offset, kFramePayloadMax), 1),
              PostResult::kPending);
  }
  const TimePoint deadline = Clock::now() + std::chrono::seconds(10);
  while ((into->frames < frames || from->tokens < tokens) && Clock::now() < deadline) {
    world.verbs(0).poll(*from);
    world.verbs(1).poll(*into);
  }
  EXPECT_EQ(into->frames, frames);
  EXPECT_EQ(from->tokens, tokens);
  EXPECT_TRUE(from->memory == into->memory);
}

TEST(Lending, RepeatedCallRegistersNothingAndCopiesNothing) {
  if (const auto monitor = make_memory_monitor(); !monitor) {
    GTEST_SKIP() << "registrations do not outlive their use: " << monitor.error().message();
  }
  const LogGuard log;
  World world({.ranks = 2, .ports = 2});
  OneBuffer from(kPieces * kFramePayloadMax);
  OneBuffer into(kPieces * kFramePayloadMax);
  repeat(world, &from, &into);
  const auto made = [&](Rank rank) { return world.verbs(rank).registration_counts().made; };
  EXPECT_EQ(made(0), 1u) << "the message is registered whole";
  EXPECT_EQ(made(1), 1u);
  const std::uint64_t at_device =
      world.network().counters(0).registrations + world.network().counters(1).registrations;
  for (int round = 1; round <= 10; ++round) {
    unisono::test::fill_payload(from.memory, 0, static_cast<std::uint64_t>(round));
    repeat(world, &from, &into);
  }
  EXPECT_EQ(made(0), 1u);
  EXPECT_EQ(made(1), 1u);
  EXPECT_EQ(world.network().counters(0).registrations + world.network().counters(1).registrations,
            at_device);
  for (const Rank rank : {0, 1}) EXPECT_EQ(world.verbs(rank).work_counts().staged_bytes, 0u);
  const WorkCounts& counts = world.verbs(1).work_counts();
  EXPECT_EQ(counts.reads, 11u * kPieces) << "one read for each frame";
  EXPECT_EQ(world.network().counters(1).posted[IBV_WR_RDMA_READ], counts.reads);
  EXPECT_LT(counts.signalled, counts.reads);
  EXPECT_LT(world.network().counters(1).signalled, counts.reads);
}

TEST(Lending, SmallFrameIsOneInlineWrite) {
  const LogGuard log;
  World world;
  ASSERT_TRUE(world.greet());
  const WorkCounts before = world.verbs(0).work_counts();
  const FakeCounters device = world.network().counters(0);
  for (int frame = 0; frame < 50; ++frame) {
    ASSERT_TRUE(world.send(0, 1, {.bytes = 100}));
    ASSERT_TRUE(world.settle());
  }
  const WorkCounts& after = world.verbs(0).work_counts();
  EXPECT_EQ(after.writes - before.writes, 50u);
  EXPECT_EQ(after.reads, 0u);
  EXPECT_LE(after.signalled - before.signalled, 50u / 8);
  EXPECT_GE(world.network().counters(0).inlined - device.inlined, 50u);
  EXPECT_EQ(after.epochs, 1u);
}

TEST(Lending, FramesPostedTogetherShareWritesAndCompletions) {
  const LogGuard log;
  World world;
  ASSERT_TRUE(world.greet());
  const WorkCounts before = world.verbs(0).work_counts();
  for (int frame = 0; frame < 12; ++frame) {
    ASSERT_EQ(world.try_send(0, 1, {.bytes = kLarge, .kind = FrameKind::kData}),
              PostResult::kPending);
  }
  ASSERT_TRUE(world.settle());
  EXPECT_LE(world.verbs(0).work_counts().writes - before.writes, 4u);
  EXPECT_EQ(world.verbs(1).work_counts().reads, 12u);
  EXPECT_LE(world.verbs(1).work_counts().signalled, 12u / 2);
}

TEST(Lending, WhatStaysRegisteredIsBounded) {
  const LogGuard log;
  constexpr std::size_t kBound = 1024 * 1024;
  WorldShape shape{.ranks = 2};
  shape.options.registered_bytes_max = kBound;
  World world(std::move(shape));
  // All at once, so that each has memory of its own.
  for (int frame = 0; frame < 12; ++frame) {
    ASSERT_EQ(world.try_send(0, 1, {.bytes = kLarge}), PostResult::kPending);
  }
  EXPECT_GT(world.verbs(0).registration_counts().bytes, kBound) << "what is lent is never dropped";
  ASSERT_TRUE(world.settle());
  for (const Rank rank : {0, 1}) {
    EXPECT_LE(world.verbs(rank).registration_counts().bytes, kBound);
  }
}

// Later frames of the same link arrive although earlier ones were taken back. All of them do: the
// peer may have counted on them.
bool later_frames_arrive(World& world) {
  if (!world.send(0, 1, {.bytes = 100}) || !world.send(0, 1, {.bytes = kLarge})) return false;
  const std::uint64_t last = world.sent(0, 1) - 1;
  const bool arrived = world.pump_until(
      [&] {
        const auto& frames = world.witness(1).frames(0);
        return !frames.empty() && frames.back().sequence == last;
      },
      "the last frame");
  return arrived &&
         world.pump_until([&] { return world.witness(0).tokens_outstanding() == 0; }, "buffers");
}

// Of rank 1, and stuck there where its host is held.
bool reads_are_under_way(World& world) {
  return world.pump_until([&] { return world.verbs(1).work_counts().reads > 0; }, "reads");
}

WorldShape in_small_pieces(int ports, std::uint64_t seed) {
  WorldShape shape{.ranks = 2, .ports = ports};
  shape.network.piece_bytes_max = 4096;
  shape.network.seed = seed;
  shape.network.forget_completions_of_destroyed = seed % 2 == 0;
  return shape;
}

TEST(Cancel, FrameThatIsBeingReadArrivesAsItWas) {
  const LogGuard log;
  for (const FrameKind kind : {FrameKind::kEager, FrameKind::kData}) {
    World world(in_small_pieces(2, 1));
    ASSERT_TRUE(world.greet());
    world.network().hold(1);
    for (int frame = 0; frame < 5; ++frame) {
      ASSERT_TRUE(world.send(0, 1, {.bytes = kLarge, .kind = kind}));
    }
    ASSERT_TRUE(reads_are_under_way(world));
    EXPECT_EQ(world.cancel_all(0, 1), 5u);
    world.network().release(1);
    ASSERT_TRUE(later_frames_arrive(world));
    world.close_all();
  }
}

TEST(Cancel, AtAnyMomentOfReading) {
  const unisono::test::SeedTrace trace;
  const LogGuard log;
  for (std::uint64_t seed = 1; seed <= 60 && !testing::Test::HasFailure(); ++seed) {
    World world(in_small_pieces(1 + static_cast<int>(seed % 2), seed));
    ASSERT_TRUE(world.greet());
    for (int frame = 0; frame < 6; ++frame) {
      ASSERT_TRUE(world.send(0, 1, {.bytes = kLarge, .kind = FrameKind::kData}));
    }
    world.turns(static_cast<int>(seed));
    world.cancel_all(0, 1);
    ASSERT_TRUE(later_frames_arrive(world)) << "seed " << seed;
    world.close_all();
  }
}

// What came over the old queue pair and was not looked at is not the new one's.
TEST(Cancel, WhereTheNextQueuePairHasTheNumberOfTheOneBefore) {
  for (const bool vanish : {true, false}) {
    SCOPED_TRACE(vanish);
    const LogGuard log;
    WorldShape shape;
    shape.network.reuse_numbers = true;
    shape.network.forget_completions_of_destroyed = vanish;
    shape.options.ring_bytes = 4096;
    World world(shape);
    ASSERT_TRUE(world.greet());
    for (int frame = 0; frame < 20; ++frame) ASSERT_TRUE(world.send(0, 1, {.bytes = 64}));
    ASSERT_TRUE(world.settle());
    world.turns(2);
    world.network().wait_until_idle();
    world.poll(0);  // hears what of the ring is free again
    ASSERT_TRUE(world.send(1, 0, {.bytes = kLarge}));
    world.poll(1);
    // Around the ring's end: when they are written again, the first piece ends before the last.
    for (int frame = 0; frame < 14; ++frame) {
      ASSERT_EQ(world.try_send(0, 1, {.bytes = 64}), PostResult::kDone);
    }
    world.network().wait_until_idle();
    EXPECT_EQ(world.cancel_all(1, 0), 1U);
    EXPECT_TRUE(later_frames_arrive(world));
    EXPECT_FALSE(world.has_ended(1, 0)) << world.witness(1).closed_cause(0)->message();
    world.close_all();
  }
}

TEST(Cancel, OfFramesThatWereNotPosted) {
  const LogGuard log;
  World world;
  // Queued before the ranks have met.
  for (int frame = 0; frame < 4; ++frame) {
    ASSERT_EQ(world.try_send(0, 1, {.bytes = kLarge}), PostResult::kPending);
  }
  EXPECT_EQ(world.cancel_all(0, 1), 4u);
  ASSERT_TRUE(later_frames_arrive(world));
  // And behind a device that does nothing.
  world.network().hold(0);
  for (int frame = 0; frame < 4; ++frame) {
    ASSERT_EQ(world.try_send(0, 1, {.bytes = kLarge}), PostResult::kPending);
  }
  world.turns(20);
  EXPECT_EQ(world.cancel_all(0, 1), 4u);
  world.network().release(0);
  ASSERT_TRUE(later_frames_arrive(world));
  world.close_all();
}

TEST(Cancel, OfFramesThatWereReadAndNotHandedBack) {
  const LogGuard log;
  World world;
  ASSERT_TRUE(world.greet());
  ASSERT_TRUE(world.send(0, 1, {.bytes = kLarge}));
  world.poll(0);
  world.pause(0);
  ASSERT_TRUE(world.pump_until([&] { return world.witness(1).count(0) == 2; }, "the frame"));
  world.turns(20);
  world.network().wait_until_idle();
  EXPECT_EQ(world.cancel_all(0, 1), 1u);
  world.pause(0, false);
  ASSERT_TRUE(later_frames_arrive(world));
  world.close_all();
}

TEST(Cancel, WhileTheLinkMoves) {
  const unisono::test::SeedTrace trace;
  for (std::uint64_t seed = 1; seed <= 10 && !testing::Test::HasFailure(); ++seed) {
    LogGuard log;
    log.expect("fake");
    World world(in_small_pieces(2, seed));
    ASSERT_TRUE(world.greet());
    for (int frame = 0; frame < 6; ++frame) {
      ASSERT_TRUE(world.send(0, 1, {.bytes = kLarge, .kind = FrameKind::kData}));
    }
    world.turns(10);
    world.network().set_link(static_cast<int>(seed % 2), 0, false);
    world.turns(static_cast<int>(3 * seed));
    world.cancel_one(0, 1);
    world.turns(2);
    world.cancel_all(0, 1);
    ASSERT_TRUE(later_frames_arrive(world)) << "seed " << seed;
    world.close_all();
  }
}

// Gives back the memory of the frame that rank 1 is receiving, makes it the caller's own, and lets
// everything go on.
void abandon_and_go_on(World& world) {
  const std::span<std::byte> memory = world.witness(1).memory_in_use(0);
  ASSERT_FALSE(memory.empty());
  world.verbs(1).endpoint(0).abandon(memory.data(), memory.size());
  world.witness(1).expect_abandoned(0);
  std::fill(memory.begin(), memory.end(), kMine);
  world.network().release(1);
  bool untouched = false;
  world.witness(1).on_received = [&](Rank, const FrameHeader&) {
    const auto last = world.witness(1).last_memory();
    untouched = std::all_of(last.begin(), last.end(), [](std::byte b) { return b == kMine; });
  };
  const std::uint64_t before = world.witness(1).count(0);
  EXPECT_TRUE(world.pump_until([&] { return world.witness(1).count(0) > before; }, "the frame"));
  world.witness(1).on_received = {};
  EXPECT_TRUE(untouched) << "memory was written after it had been given back";
  EXPECT_TRUE(later_frames_arrive(world));
}

TEST(Abandon, MemoryIsNotWrittenAfterwards) {
  const LogGuard log;
  for (const FrameKind kind : {FrameKind::kEager, FrameKind::kData}) {
    World world(in_small_pieces(2, 1));
    ASSERT_TRUE(world.greet());
    world.network().hold(1);
    ASSERT_TRUE(world.send(0, 1, {.bytes = kLarge, .kind = kind}));
    ASSERT_TRUE(reads_are_under_way(world));
    abandon_and_go_on(world);
    world.close_all();
  }
}

TEST(Abandon, AtAnyMomentOfReading) {
  const unisono::test::SeedTrace trace;
  const LogGuard log;
  for (std::uint64_t seed = 1; seed <= 40 && !testing::Test::HasFailure(); ++seed) {
    World world(in_small_pieces(1, seed));
    ASSERT_TRUE(world.greet());
    ASSERT_TRUE(world.send(0, 1, {.bytes = kLarge}));
    ASSERT_TRUE(world.pump_until(
        [&] { return !world.witness(1).memory_in_use(0).empty() || world.witness(1).count(0) > 1; },
        "the frame's beginning"));
    if (world.witness(1).count(0) == 1) abandon_and_go_on(world);
    world.close_all();
  }
}

TEST(Abandon, AlsoOfMemoryThatIsReadByWayOfStaging) {
  LogGuard log;
  log.expect("cannot be registered");
  World world(in_small_pieces(1, 1));
  ASSERT_TRUE(world.greet());
  world.network().hold(1);
  world.network().fail_calls_from(1, FakeCall::kRegMr, 1, ENOMEM);
  ASSERT_TRUE(world.send(0, 1, {.bytes = kLarge}));
  ASSERT_TRUE(reads_are_under_way(world));
  EXPECT_GT(world.verbs(1).work_counts().staged_bytes, 0u);
  abandon_and_go_on(world);
  world.close_all();
}

}  // namespace
}  // namespace unisono::verbs::test
