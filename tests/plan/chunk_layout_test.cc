// Chunks to bytes: tails, nothing, huge counts, variable blocks, scratch.
#include "plan/chunk_layout.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "algorithms/algorithm.h"
#include "tests/plan/plan_cases.h"

namespace unisono::plan {
namespace {

TEST(BufferLayout, CutsAnyCountIntoAdjoiningChunksOfNearlyEqualLength) {
  for (std::size_t count = 0; count <= 40; ++count) {
    for (int blocks = 1; blocks <= 7; ++blocks) {
      for (int chunks = 1; chunks <= 4; ++chunks) {
        const auto layout = BufferLayout::contiguous(count, 8, blocks, chunks);
        ASSERT_EQ(layout.chunk_count(), static_cast<std::size_t>(blocks * chunks));
        std::size_t end = 0;
        std::size_t shortest = count;
        std::size_t longest = 0;
        for (std::uint32_t c = 0; c < layout.chunk_count(); ++c) {
          const ByteRange range = layout.range(c, 1);
          ASSERT_EQ(range.offset, end);
          ASSERT_EQ(range.bytes % 8, 0u);
          shortest = std::min(shortest, range.bytes / 8);
          longest = std::max(longest, range.bytes / 8);
          end += range.bytes;
        }
        EXPECT_EQ(end, count * 8);
        EXPECT_LE(longest - std::min(shortest, longest), 2u);
        EXPECT_EQ(layout.range(0, static_cast<std::uint32_t>(blocks * chunks)).bytes, count * 8);
      }
    }
  }
}

TEST(BufferLayout, FollowsTheRuleForTails) {
  const auto layout = BufferLayout::contiguous(10, 4, 1, 4);
  EXPECT_EQ(layout.range(0, 1).bytes, 2 * 4u);  // elements [0, 2)
  EXPECT_EQ(layout.range(1, 1).offset, 2 * 4u);
  EXPECT_EQ(layout.range(1, 1).bytes, 3 * 4u);  // [2, 5)
  EXPECT_EQ(layout.range(1, 2).bytes, 5 * 4u);  // [2, 7)
}

TEST(BufferLayout, CutsCountsWhoseProductsExceed64Bits) {
  const std::size_t count = (std::size_t{1} << 62) + 3;
  const auto layout = BufferLayout::contiguous(count, 1, 1, 1000);
  std::size_t end = 0;
  for (std::uint32_t c = 0; c < 1000; ++c) {
    ASSERT_EQ(layout.range(c, 1).offset, end);
    end += layout.range(c, 1).bytes;
  }
  EXPECT_EQ(end, count);
  const std::size_t past_32_bits = (std::size_t{5} << 32) + 1;
  EXPECT_EQ(BufferLayout::contiguous(past_32_bits, 4, 3, 2).range(0, 6).bytes, past_32_bits * 4);
}

TEST(BufferLayout, HasNoBytesInAnEmptyRun) {
  const auto layout = BufferLayout::contiguous(10, 4, 2, 2);
  EXPECT_EQ(layout.range(4, 0).bytes, 0u);
  EXPECT_EQ(BufferLayout::contiguous(0, 4, 0, 1).chunk_count(), 0u);
  EXPECT_EQ(BufferLayout().chunk_count(), 0u);
}

TEST(BufferLayout, PlacesVariableBlocksAtTheirDisplacements) {
  const std::size_t counts[] = {3, 0, 5};
  const std::size_t displacements[] = {10, 13, 20};
  const auto layout = BufferLayout::with_blocks(counts, displacements, 2, 2);
  EXPECT_EQ(layout.range(0, 1).offset, 20u);
  EXPECT_EQ(layout.range(0, 2).bytes, 6u);
  EXPECT_EQ(layout.range(2, 2).bytes, 0u);
  EXPECT_EQ(layout.range(4, 1).offset, 40u);
  EXPECT_EQ(layout.range(4, 1).bytes, 4u);
  EXPECT_EQ(layout.range(5, 1).bytes, 6u);
}

Plan scratch_plan() {
  Plan plan;
  plan.input_blocks = plan.output_blocks = 1;
  plan.request.chunks = 4;
  for (std::uint32_t c = 0; c < 4; ++c) plan.scratch_like.push_back({Buffer::kOutput, c, 1});
  return plan;
}

TEST(ChunkLayout, AlignsScratchChunksThatStandAlone) {
  const auto whole = BufferLayout::contiguous(40, 1, 1, 4);
  const ChunkLayout layout = ChunkLayout::bind(scratch_plan(), whole, whole);
  EXPECT_EQ(layout.range({Buffer::kScratch, 3, 1}).offset, 192u);
  EXPECT_EQ(layout.range({Buffer::kScratch, 3, 1}).bytes, 10u);
  EXPECT_EQ(layout.scratch_bytes, 202u);
}

TEST(ChunkLayout, LeavesNoGapsInScratchThatAStepUsesAsOneRun) {
  Plan plan = scratch_plan();
  plan.steps.push_back({.kind = StepKind::kSend, .target = {}, .source = {Buffer::kScratch, 1, 2}});
  const auto whole = BufferLayout::contiguous(40, 1, 1, 4);
  const ChunkLayout layout = ChunkLayout::bind(plan, whole, whole);
  EXPECT_EQ(layout.range({Buffer::kScratch, 1, 1}).offset, 64u);
  EXPECT_EQ(layout.range({Buffer::kScratch, 1, 2}).bytes, 20u);
  EXPECT_EQ(layout.range({Buffer::kScratch, 3, 1}).offset, 128u);
}

TEST(ChunkLayout, GivesBothEndsOfEveryMessageTheSameBytes) {
  for (const algorithms::Algorithm& algorithm : algorithms::catalog()) {
    const Collective collective = algorithm.collective;
    const bool vector = !facts_of(collective).has_blocks();
    for (const std::size_t count : {0, 1, 7, 64, 1000}) {
      const PlanRequest request{.collective = collective, .ranks = 8, .root = 3, .chunks = 3};
      const auto plans = plan_test::build_all(algorithm, request);
      std::vector<ChunkLayout> layouts;
      for (const Plan& plan : plans) {
        const auto buffer = [&](int blocks) {
          const std::size_t total = vector ? count : count * static_cast<std::size_t>(blocks);
          return BufferLayout::contiguous(total, 4, blocks, 3);
        };
        layouts.push_back(
            ChunkLayout::bind(plan, buffer(plan.input_blocks), buffer(plan.output_blocks)));
      }
      for (const auto& [send, receive] : plan_test::messages_of(plans)) {
        const auto sender = static_cast<std::size_t>(receive->peer);
        const auto receiver = static_cast<std::size_t>(send->peer);
        ASSERT_EQ(layouts[sender].range(send->source).bytes,
                  layouts[receiver].range(receive->target).bytes)
            << plan_test::title_of(algorithm) << " with " << count << " elements";
      }
    }
  }
}

}  // namespace
}  // namespace unisono::plan
