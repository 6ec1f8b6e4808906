// StagingPool: what is lent, kept and refused, and memory that is page-locked meanwhile.
#include "cuda/device/staging_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <utility>
#include <vector>

#include "cuda/driver/driver_section.h"
#include "tests/cuda/memory_fixture.h"

namespace unisono::test {
namespace {

using device::StagingPool;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Block = StagingPool::Block;
using Bound = StagingPool::Bound;

constexpr std::size_t kBytesMax = 4 * kMiB;

class StagingPoolTest : public ::testing::Test {
 protected:
  // What a staged call does at each look.
  Result<Block> take(std::size_t bytes, Bound bound = Bound::kHolds) {
    for (;;) {
      UNISONO_ASSIGN(auto block, pool_.take(bytes, bound));
      if (block.has_value()) return std::move(*block);
      std::this_thread::yield();
    }
  }

  std::unique_ptr<cuda::DeviceMemory> memory_ = open_device();
  cuda::DriverSection section_{*driver(), memory_->context()};
  StagingPool pool_{driver(), memory_->context(), memory_->name(), kBytesMax};
};

TEST_F(StagingPoolTest, LendsABlockAgainThatCameBack) {
  std::byte* data = nullptr;
  {
    const auto block = take(kMiB);
    ASSERT_TRUE(block);
    data = block->data();
    data[kMiB - 1] = std::byte{1};
    EXPECT_NE(take(kMiB)->data(), data);
  }
  const auto again = take(kMiB - 1);
  const auto other = take(kMiB);
  EXPECT_TRUE(again->data() == data || other->data() == data);
}

TEST_F(StagingPoolTest, HasNothingWhereAllOfTheBoundIsLentAndMessagesMayExceedIt) {
  auto whole = take(kBytesMax);
  ASSERT_TRUE(whole);
  const auto more = pool_.take(1, Bound::kHolds);
  ASSERT_TRUE(more);
  EXPECT_FALSE(more->has_value());
  EXPECT_TRUE(take(kMiB, Bound::kMayExceed));
  whole->release();
  EXPECT_TRUE(take(1));
}

TEST_F(StagingPoolTest, LendsOrdinaryMemoryWherePageLockedMemoryCannotBeWaitedFor) {
  {
    auto block = pool_.take(kBytesMax, Bound::kHolds, StagingPool::Meanwhile::kOrdinaryMemory);
    ASSERT_TRUE(block && block->has_value());
    (*block)->data()[kBytesMax - 1] = std::byte{1};
    const auto more = pool_.take(1, Bound::kHolds, StagingPool::Meanwhile::kOrdinaryMemory);
    EXPECT_FALSE(more->has_value()) << "it counts against the bound";
  }
  EXPECT_TRUE(take(kBytesMax)) << "was ordered meanwhile";
}

TEST_F(StagingPoolTest, TakesALongerBlockWhereItKeepsAsMuchAsItMay) {
  std::byte* const data = take(kBytesMax)->data();
  EXPECT_EQ(take(1)->data(), data);
}

TEST_F(StagingPoolTest, NamesTheBoundThatBlocksExceed) {
  EXPECT_TRUE(pool_.can_hold(kBytesMax, 0));
  EXPECT_TRUE(pool_.can_hold(kBytesMax / 2, kBytesMax / 2));
  for (const std::size_t other : {std::size_t{1}, kBytesMax}) {
    const Status refused = pool_.can_hold(kBytesMax, other);
    EXPECT_EQ(refused.code(), ErrorCode::kOutOfResources);
    EXPECT_THAT(refused.message(),
                AllOf(HasSubstr(std::to_string(kBytesMax + other) + " bytes"),
                      HasSubstr("at most 4194304"), HasSubstr("UNISONO_SCRATCH_BYTES")));
  }
}

TEST_F(StagingPoolTest, TellsWhoeverWantsAsMuchWhatTheDriverSaid) {
  if (fake() == nullptr) GTEST_SKIP() << "only the fake driver fails when told";
  fake()->fail("cuMemHostAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY);
  const auto refused = take(kMiB);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(),
              AllOf(HasSubstr("page-locking 1048576 bytes"), HasSubstr("device 0")));
  EXPECT_TRUE(take(kMiB)) << "the next one asks again";
}

TEST_F(StagingPoolTest, DoesNotTellARefusalToWhoeverWantsLess) {
  if (fake() == nullptr) GTEST_SKIP() << "only the fake driver fails when told";
  fake()->fail("cuMemHostAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_TRUE(pool_.take(kMiB, Bound::kHolds));  // is ordered, and will be refused
  EXPECT_TRUE(take(1));
}

// Two sizes of one call, which takes them in turn.
TEST_F(StagingPoolTest, KeepsARefusalForWhoeverWantsAsMuch) {
  if (fake() == nullptr) GTEST_SKIP() << "only the fake driver fails when told";
  ASSERT_TRUE(take(1));
  fake()->fail("cuMemHostAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_TRUE(pool_.take(kMiB, Bound::kHolds));  // is ordered, and will be refused
  for (;;) {
    ASSERT_TRUE(pool_.take(1, Bound::kHolds));
    const auto refused = pool_.take(kMiB, Bound::kHolds);
    if (!refused) {
      EXPECT_THAT(refused.error().message(), HasSubstr("page-locking"));
      break;
    }
    ASSERT_FALSE(refused->has_value()) << "the refusal was lost";
    std::this_thread::yield();
  }
}

TEST_F(StagingPoolTest, IsClosedWhileMemoryIsPageLocked) {
  StagingPool closed(driver(), memory_->context(), memory_->name(), kBytesMax);
  const auto ordered = closed.take(kMiB, Bound::kHolds);
  ASSERT_TRUE(ordered);
  EXPECT_FALSE(ordered->has_value());
}

TEST_F(StagingPoolTest, DoesNotTakeBackWhatAStreamMayStillUse) {
  auto abandoned = take(kMiB);
  ASSERT_TRUE(abandoned);
  std::byte* const data = abandoned->data();
  abandoned->abandon();
  abandoned->release();
  EXPECT_NE(take(kMiB)->data(), data);
  EXPECT_TRUE(take(kBytesMax)) << "it counts no more";
  EXPECT_EQ(driver()->MemFreeHost(data), CUDA_SUCCESS);
}

}  // namespace
}  // namespace unisono::test
