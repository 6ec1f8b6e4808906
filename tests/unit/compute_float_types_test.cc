// unisono/float_types.h against exhaustive search: every code of every format, and around every
// boundary between two codes.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "compute_oracle.h"
#include "unisono/float_types.h"

namespace unisono {
namespace {

using compute_test::small_format;
using compute_test::SmallFormat;

template <typename T>
class FloatTypes : public testing::Test {
 protected:
  using Code = decltype(T::bits);
  const SmallFormat& format = *small_format(data_type_of<T>);
  const std::uint32_t code_count = 1u << format.bits();
  const std::uint32_t sign_bit = code_count / 2;

  static T with(std::uint32_t code) { return T{static_cast<Code>(code)}; }
  static std::uint32_t encode(float value) { return from_float<T>(value).bits; }
  std::uint32_t largest_finite() const {
    std::uint32_t code = sign_bit - 1;
    while (!std::isfinite(format.decode(code))) --code;
    return code;
  }
};
using Types = testing::Types<Float16, Bfloat16, Float8E4m3, Float8E5m2>;
TYPED_TEST_SUITE(FloatTypes, Types);

TYPED_TEST(FloatTypes, WidensEveryCodeExactly) {
  for (std::uint32_t code = 0; code < this->code_count; ++code) {
    const float actual = to_float(this->with(code));
    const auto expected = static_cast<float>(this->format.decode(code));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(actual)) << code;
    } else {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(actual), std::bit_cast<std::uint32_t>(expected))
          << code;
    }
  }
}

TYPED_TEST(FloatTypes, RoundTripsEveryCodeButInfinityThatSaturates) {
  for (std::uint32_t code = 0; code < this->code_count; ++code) {
    const float wide = to_float(this->with(code));
    const std::uint32_t again = this->encode(wide);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(this->format.decode(again))) << code;
    } else if (std::isinf(wide) && this->format.saturates) {
      EXPECT_EQ(again, (code & this->sign_bit) | this->largest_finite());
    } else {
      EXPECT_EQ(again, code);
    }
  }
}

TYPED_TEST(FloatTypes, RoundsToNearestEvenAroundEveryBoundary) {
  for (std::uint32_t code = 0; code <= this->largest_finite(); ++code) {
    const double low = this->format.decode(code);
    const double high = code < this->largest_finite() ? this->format.decode(code + 1)
                                                      : low + (low - this->format.decode(code - 1));
    const auto middle = static_cast<float>((low + high) / 2);
    for (const float value : {static_cast<float>(low), middle, std::nextafterf(middle, 0.0f),
                              std::nextafterf(middle, INFINITY)}) {
      ASSERT_EQ(this->encode(value), this->format.encode(value)) << value;
      ASSERT_EQ(this->encode(-value), this->format.encode(-value)) << -value;
    }
  }
}

TYPED_TEST(FloatTypes, AgreesWithSearchOverTheWholeRangeOfFloat) {
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 40'009) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(to_float(from_float<TypeParam>(value))));
    } else {
      ASSERT_EQ(this->encode(value), this->format.encode(value)) << value;
    }
  }
}

TYPED_TEST(FloatTypes, KeepsSignOfZeroAndOfNan) {
  EXPECT_EQ(this->encode(0.0f), 0u);
  EXPECT_EQ(this->encode(-0.0f), this->sign_bit);
  EXPECT_TRUE(std::signbit(to_float(from_float<TypeParam>(-NAN))));
}

TEST(FloatTypesOverflow, SixteenBitsBecomeInfinity) {
  EXPECT_EQ(to_float16(65519.0f).bits, 0x7bff);
  EXPECT_EQ(to_float16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(to_float16(-INFINITY).bits, 0xfc00);
  EXPECT_EQ(to_bfloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
}

TEST(FloatTypesOverflow, EightBitsSaturate) {
  EXPECT_EQ(to_float(to_float8_e4m3(1e30f)), 448.0f);
  EXPECT_EQ(to_float(to_float8_e4m3(-INFINITY)), -448.0f);
  EXPECT_EQ(to_float(to_float8_e5m2(1e30f)), 57344.0f);
  EXPECT_EQ(to_float(to_float8_e5m2(INFINITY)), 57344.0f);
}

TEST(FloatTypesNan, BecomesQuietAndKeepsWhatFitsOfItsPayload) {
  const float signalling = std::bit_cast<float>(0x7f802001u);
  EXPECT_EQ(to_float16(signalling).bits, 0x7e01);
  EXPECT_EQ(to_bfloat16(signalling).bits, 0x7fc0);
  EXPECT_EQ(to_float8_e4m3(signalling).bits, 0x7f);
  EXPECT_EQ(to_float8_e5m2(signalling).bits, 0x7e);
}

static_assert(to_float(to_float16(1.5f)) == 1.5f, "conversions work at compile time");

}  // namespace
}  // namespace unisono
