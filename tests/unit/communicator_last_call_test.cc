// What a communicator remembers of its last call: what is the same call again, and what is not.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <vector>

#include "backend/last_call.h"

namespace unisono {
namespace {

struct LastCallTest : ::testing::Test {
  LastCallTest() {
    last.remember(call, {.input_bytes = 16, .output_bytes = 16}, {}, 3);
    EXPECT_TRUE(last.is_again(call));
  }
  bool is_again_with(void (*change)(Call&)) {
    Call other = call;
    change(other);
    return last.is_again(other);
  }

  std::vector<float> buffers = std::vector<float>(16);
  Call call{.collective = Collective::kAllReduce,
            .in = buffers.data(),
            .out = buffers.data() + 4,
            .count = 4,
            .type = DataType::kFloat32,
            .op = ops::sum};
  LastCall last;
};

TEST_F(LastCallTest, IsNotAnotherCall) {
  EXPECT_FALSE(is_again_with([](Call& c) { c.collective = Collective::kScan; }));
  EXPECT_FALSE(is_again_with([](Call& c) { c.count = 3; }));
  EXPECT_FALSE(is_again_with([](Call& c) { c.type = DataType::kInt32; }));
  EXPECT_FALSE(is_again_with([](Call& c) { c.op = ops::max; }));
  EXPECT_FALSE(is_again_with([](Call& c) { c.root = 1; }));
  EXPECT_FALSE(is_again_with([](Call& c) { c.options.order = Order::kCanonical; }));
  EXPECT_FALSE(is_again_with([](Call& c) { c.options.algorithm = "ring"; }));
  static const std::size_t counts[]{4};
  EXPECT_FALSE(is_again_with([](Call& c) { c.out_counts = counts; }));
}

// The factors 0 and -0 are equal, and their products are not; NaN is not equal to itself.
TEST_F(LastCallTest, HasTheSameFactorBitByBit) {
  call.op = ops::premultiplied_sum(-0.0);
  last.remember(call, {.input_bytes = 16, .output_bytes = 16}, {}, 3);
  EXPECT_TRUE(is_again_with([](Call&) {}));
  EXPECT_FALSE(is_again_with([](Call& c) { c.op = ops::premultiplied_sum(0.0); }));
  call.op = ops::premultiplied_sum(std::numeric_limits<double>::quiet_NaN());
  last.remember(call, {.input_bytes = 16, .output_bytes = 16}, {}, 3);
  EXPECT_TRUE(is_again_with([](Call&) {}));
}

// If it takes long it goes on by what it was given itself.
TEST_F(LastCallTest, MayHaveAnotherDeadline) {
  EXPECT_TRUE(is_again_with([](Call& c) { c.options.timeout = std::chrono::seconds(1); }));
}

TEST_F(LastCallTest, TakesOtherBuffersThatTheCheckWouldFindRight) {
  Call other = call;
  other.out = buffers.data() + 8;
  EXPECT_TRUE(last.is_again(other));
  EXPECT_FALSE(last.has_buffers_of(other));
  EXPECT_TRUE(last.has_buffers_of(call));
  other.out = buffers.data() + 3;  // overlaps
  EXPECT_FALSE(last.is_again(other));
  other.out = nullptr;
  EXPECT_FALSE(last.is_again(other));
}

TEST_F(LastCallTest, InPlaceTakesOtherBuffersThatLieInEachOtherAsBefore) {
  Call whole{.collective = Collective::kGather,
             .in = buffers.data() + 4,
             .out = buffers.data(),
             .count = 4,
             .type = DataType::kFloat32};
  last.remember(whole, {.in_place = true, .input_bytes = 16, .output_bytes = 32}, {}, 4);
  whole.in = buffers.data() + 8;
  EXPECT_FALSE(last.is_again(whole)) << "behind the output";
  whole.out = buffers.data() + 4;
  EXPECT_TRUE(last.is_again(whole));
  EXPECT_FALSE(last.has_buffers_of(whole));
  whole.in = whole.out = nullptr;
  EXPECT_FALSE(last.is_again(whole));
}

TEST_F(LastCallTest, ABufferThatItDoesNotUseMayBeAnywhereOrMissing) {
  last.remember(call, {.input_bytes = 16, .output_bytes = 0}, {}, 4);
  for (void* const out : {static_cast<void*>(nullptr), static_cast<void*>(buffers.data() + 1)}) {
    Call other = call;
    other.out = out;
    EXPECT_TRUE(last.is_again(other));
    other.in = nullptr;
    EXPECT_FALSE(last.is_again(other));
  }
  last.remember(call, {.input_bytes = 0, .output_bytes = 16}, {}, 5);
  Call other = call;
  other.in = nullptr;
  EXPECT_TRUE(last.is_again(other));
  other.out = nullptr;
  EXPECT_FALSE(last.is_again(other));
}

TEST_F(LastCallTest, IsForgottenOrNeverToBeRepeated) {
  last.forget();
  EXPECT_FALSE(last.is_again(call));
  EXPECT_FALSE(last.has_buffers_of(call));
  last.remember(call, {}, {}, 0);
  EXPECT_FALSE(last.is_again(call));
}

TEST_F(LastCallTest, IsCountedOnce) {
  last.note_repeated();
  EXPECT_EQ(last.take_uncounted(), 2u);
  EXPECT_EQ(last.take_uncounted(), 0u);
}

TEST(LastReduction, IsMadeAnewForAnotherZero) {
  LastReduction last(2);
  for (const double factor : {-0.0, 0.0, -0.0}) {
    const Call call{.type = DataType::kFloat32, .op = ops::premultiplied_sum(factor)};
    const float in = 1.0F;
    float out = 5.0F;
    (*last.of(call, Order::kAny))->prepare(&out, &in, 1);
    EXPECT_EQ(std::signbit(out), std::signbit(factor)) << factor;
  }
}

TEST(LastReduction, IsMadeAnewForAnotherTypeOperatorOrOrder) {
  LastReduction last(2);
  Call call{.type = DataType::kFloat32, .op = ops::average};
  const auto first = last.of(call, Order::kAny);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(*last.of(call, Order::kAny), *first);
  const float addends[]{1.0F, 0x1p-40F, -1.0F};
  const void* const inputs[]{&addends[0], &addends[1], &addends[2]};
  for (const auto& [order, sum] : {std::pair(Order::kExact, 0x1p-40F), {Order::kCanonical, 0.0F}}) {
    float out = 1;
    (*last.of(call, order))->combine_tree(&out, inputs, 3, 1, false);
    EXPECT_EQ(out, sum);
  }
  call.type = DataType::kBool;
  EXPECT_EQ(last.of(call, Order::kAny).status().code(), ErrorCode::kInvalidArgument);
  call.op = ops::max;
  EXPECT_TRUE(last.of(call, Order::kAny).has_value());
}

}  // namespace
}  // namespace unisono
