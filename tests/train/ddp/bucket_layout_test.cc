// Which parameters share a bucket: goldens.
#include "train/ddp/bucket_layout.h"

#include <gtest/gtest.h>

namespace unisono::train {
namespace {

Arena arena_of(const std::vector<std::size_t>& counts) {
  Arena arena;
  for (std::size_t i = 0; i < counts.size(); ++i) arena.add("p" + std::to_string(i), {counts[i]});
  arena.allocate();
  return arena;
}

BucketLayout assign(const std::vector<std::size_t>& counts, const std::vector<int>& order,
                    const std::vector<std::size_t>& limits) {
  const Arena arena = arena_of(counts);
  return assign_buckets(arena, order, limits);
}

TEST(BucketLayout, ClosesABucketOnceItHoldsItsLimit) {
  // As PyTorch's compute_bucket_assignment_by_size on the same sizes and limits.
  EXPECT_EQ(assign({100, 200, 100, 50}, {0, 1, 2, 3}, {400}), (BucketLayout{{0}, {1}, {2}, {3}}));
  EXPECT_EQ(assign({10, 10, 10, 10}, {0, 1, 2, 3}, {40, 80}), (BucketLayout{{0}, {1, 2}, {3}}));
}

TEST(BucketLayout, KeepsTheOrderThatItIsGiven) {
  EXPECT_EQ(assign({10, 10, 10, 10, 10}, reverse_registration_order(5), {40, 80}),
            (BucketLayout{{4}, {3, 2}, {1, 0}}));
  EXPECT_EQ(assign({1, 1, 1}, {1, 2, 0}, {8, 100}), (BucketLayout{{1, 2}, {0}}));
}

TEST(BucketLayout, ALimitOfNothingGivesEachParameterItsOwnBucket) {
  EXPECT_EQ(assign({3, 1, 2}, {2, 1, 0}, {0}), (BucketLayout{{2}, {1}, {0}}));
}

TEST(BucketLayout, DefaultLimitsSplitALargeModelAtOneAndTwentyFiveMebibytes) {
  // 1 MiB is 262,144 floats. From the end: the first bucket is small, one parameter overfills.
  const std::size_t mib = 262'144;
  EXPECT_EQ(assign({26 * mib, 20 * mib, 6 * mib, mib / 2, mib / 2}, reverse_registration_order(5),
                   {1u << 20, 25u << 20}),
            (BucketLayout{{4, 3}, {2, 1}, {0}}));
}

TEST(BucketLayout, NoParametersNeedNoBucket) {
  EXPECT_EQ(assign({}, {}, {100}), BucketLayout{});
  EXPECT_TRUE(reverse_registration_order(0).empty());
}

}  // namespace
}  // namespace unisono::train
