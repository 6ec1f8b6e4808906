// Every element type and operator of the kernels' bodies, on the host: bit for bit the same as the
// CPU's reductions for 1 to 16 inputs, and right by a plain second computation.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "compute/compute.h"
#include "cuda/kernels/arithmetic.h"
#include "cuda/kernels/kernel_names.h"
#include "tests/cuda/kernel_twins.h"
#include "tests/unit/compute_oracle.h"

namespace unisono::cuda {
namespace {

using namespace compute_test;

constexpr double kScalars[kWorkRanksMax] = {0.5,   -1.0, 3.0,  2.75,   -7.5, 1e3,  0.0, 1.0,
                                            -0.25, 5.0,  1e10, -1e300, 9e18, 2e19, NAN, 1.0 / 3};

std::vector<Bytes> random_inputs(DataType type, int n, std::size_t count, std::uint64_t seed) {
  std::vector<Bytes> inputs;
  for (int i = 0; i < n; ++i) inputs.push_back(random_elements(type, count, seed + i));
  return inputs;
}

/// One piece over all `inputs`, to one buffer.
Bytes reduced(const WorkKind& kind, std::vector<Bytes> inputs, std::uint64_t threads = 3) {
  Bytes out(inputs[0].size(), 0xee);
  DeviceWork work;
  const auto n = static_cast<std::uint16_t>(inputs.size());
  for (int i = 0; i < n; ++i) {
    work.pointers[i] = inputs[i].data();
    work.scalars[i] = kScalars[i];
  }
  work.pointers[n] = out.data();
  work.ranks = n;
  work.piece_count = 1;
  work.pieces[0] = {
      .count = out.size() / size_of(kind.type), .inputs = n, .first_output = n, .outputs = 1};
  run_on_host(work, kind, threads);
  return out;
}

/// The same by the CPU's kernels: prepare, combine_tree, finish.
Bytes reduced_by_cpu(const WorkKind& kind, std::vector<Bytes> inputs) {
  const int n = static_cast<int>(inputs.size());
  const std::size_t count = inputs[0].size() / size_of(kind.type);
  std::vector<const void*> pointers;
  for (int i = 0; i < n; ++i) {
    const ReduceOp op{kind.op, kScalars[i]};
    compute::Reduction::make(kind.type, op, n)
        .value()
        .prepare(inputs[i].data(), inputs[i].data(), count);
    pointers.push_back(inputs[i].data());
  }
  const auto reduction = compute::Reduction::make(kind.type, ReduceOp{kind.op}, n).value();
  Bytes out(inputs[0].size());
  reduction.combine_tree(out.data(), pointers.data(), n, count, false);
  reduction.finish(out.data(), count);
  return out;
}

class EveryType : public testing::TestWithParam<DataType> {};

TEST_P(EveryType, EqualsTheReductionsOfTheCpuInCanonicalOrder) {
  const DataType type = GetParam();
  for (const OpKind op : operators_of(type)) {
    for (int n = 1; n <= kWorkRanksMax; ++n) {
      const WorkKind kind{type, true, op, Order::kCanonical};
      const auto inputs = random_inputs(type, n, 999, 100 * n);
      const Bytes expected = reduced_by_cpu(kind, inputs);
      const Bytes actual = reduced(kind, inputs);
      EXPECT_EQ(first_difference(type, actual.data(), expected.data(), 999), "")
          << name_of(op) << " of " << n;
    }
  }
}

/// The only results that may differ from the canonical ones are those whose nodes are wider.
TEST_P(EveryType, EqualsTheReductionsOfTheCpuInAnyOrderWhereNodesAreNotWider) {
  const DataType type = GetParam();
  const bool is_small = small_format(type) != nullptr;
  for (const OpKind op : operators_of(type)) {
    const bool rounds = op == OpKind::kSum || op == OpKind::kProduct || op == OpKind::kAverage ||
                        op == OpKind::kPremultipliedSum;
    for (int n = 1; n <= kWorkRanksMax; ++n) {
      if (is_small && rounds && n > (op == OpKind::kAverage ? 1 : 2)) continue;
      const WorkKind kind{type, true, op, Order::kAny};
      const auto inputs = random_inputs(type, n, 333, 7 + n);
      const Bytes expected = reduced_by_cpu(kind, inputs);
      const Bytes actual = reduced(kind, inputs);
      EXPECT_EQ(first_difference(type, actual.data(), expected.data(), 333), "")
          << name_of(op) << " of " << n;
    }
  }
}

TEST_P(EveryType, EqualsAPlainSecondComputationOfTwoInputs) {
  const DataType type = GetParam();
  for (const OpKind op : operators_of(type)) {
    if (op == OpKind::kAverage || op == OpKind::kPremultipliedSum) continue;
    const auto inputs = random_inputs(type, 2, 4000, 11);
    const Bytes expected = oracle_combine(type, op, inputs[0], inputs[1]);
    const Bytes actual = reduced({type, true, op, Order::kAny}, inputs);
    EXPECT_EQ(first_difference(type, actual.data(), expected.data(), 4000), "") << name_of(op);
  }
}

TEST_P(EveryType, AveragesLikeAPlainDivisionOfTheSum) {
  const DataType type = GetParam();
  if (!is_meaningful(OpKind::kAverage, type)) return;
  for (const int n : {1, 2, 3, 8, 16}) {
    const auto inputs = random_inputs(type, n, 500, 23);
    const Bytes sum = reduced({type, true, OpKind::kSum, Order::kCanonical}, inputs);
    const Bytes expected = oracle_divide(type, sum, n);
    const Bytes actual = reduced({type, true, OpKind::kAverage, Order::kCanonical}, inputs);
    EXPECT_EQ(first_difference(type, actual.data(), expected.data(), 500), "") << n;
  }
}

INSTANTIATE_TEST_SUITE_P(Elements, EveryType, testing::ValuesIn(all_types()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

/// Calls use(T(), type) for the four narrow formats.
template <class Use>
void for_each_small_float(const Use& use) {
  use(Float16(), DataType::kFloat16);
  use(Bfloat16(), DataType::kBfloat16);
  use(Float8E4m3(), DataType::kFloat8E4m3);
  use(Float8E5m2(), DataType::kFloat8E5m2);
}

TEST(SmallFloats, WidenEveryCodeExactly) {
  for_each_small_float([]<typename T>(T, DataType type) {
    const SmallFormat& format = *small_format(type);
    for (std::uint32_t code = 0; code < 1u << format.bits(); ++code) {
      const double expected = format.decode(code);
      const float actual = widen(T{static_cast<decltype(T::bits)>(code)});
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(actual)) << name_of(type) << " " << code;
      } else {
        EXPECT_EQ(bits_as<std::uint64_t>(double{actual}), bits_as<std::uint64_t>(expected))
            << name_of(type) << " " << code;
      }
    }
  });
}

TEST(SmallFloats, RoundHalfwayValuesAndTheirNeighboursToNearestEven) {
  for_each_small_float([]<typename T>(T, DataType type) {
    const SmallFormat& format = *small_format(type);
    for (std::uint32_t code = 0; code + 1 < 1u << (format.bits() - 1); ++code) {
      const double low = format.decode(code);
      const double high = format.decode(code + 1);
      if (!std::isfinite(low) || !std::isfinite(high)) continue;
      const auto middle = static_cast<float>((low + high) / 2);
      for (const float value :
           {std::nextafter(middle, 0.0f), middle, std::nextafter(middle, INFINITY), -middle}) {
        const std::uint32_t expected = format.encode(value);
        EXPECT_EQ(narrow<T>(value).bits, expected) << name_of(type) << " " << value;
      }
    }
  });
}

/// In wide order fp16, bf16 and fp8 stay in fp32 until the root.
TEST(SmallFloats, AreRoundedOnceInAnyOrder) {
  for_each_small_float([]<typename T>(T, DataType type) {
    for (const int n : {3, 4, 7, 8, 16}) {
      const auto inputs = random_inputs(type, n, 777, 31 * n);
      const Bytes actual = reduced({type, true, OpKind::kSum, Order::kAny}, inputs);
      std::vector<Bytes> wide;
      for (const Bytes& input : inputs) {
        Bytes floats(777 * sizeof(float));
        for (std::size_t i = 0; i < 777; ++i) {
          T element;
          std::memcpy(&element, input.data() + i * sizeof(T), sizeof element);
          const float value = widen(element);
          std::memcpy(floats.data() + i * sizeof value, &value, sizeof value);
        }
        wide.push_back(std::move(floats));
      }
      const Bytes sums =
          reduced_by_cpu({DataType::kFloat32, true, OpKind::kSum, Order::kCanonical}, wide);
      Bytes expected(inputs[0].size());
      for (std::size_t i = 0; i < 777; ++i) {
        float sum;
        std::memcpy(&sum, sums.data() + i * sizeof sum, sizeof sum);
        const auto code = static_cast<decltype(T::bits)>(small_format(type)->encode(sum));
        std::memcpy(expected.data() + i * sizeof code, &code, sizeof code);
      }
      EXPECT_EQ(first_difference(type, actual.data(), expected.data(), 777), "") << n;
    }
  });
}

TEST(SmallFloats, KeepInfinitiesOfFp8ThatMeetNoOther) {
  const Bytes infinities = {0x7c, 0xfc};
  const WorkKind sum{DataType::kFloat8E5m2, true, OpKind::kSum, Order::kAny};
  EXPECT_EQ(reduced(sum, {infinities}), infinities);
  EXPECT_EQ(reduced(sum, {infinities, {0, 0}}), (Bytes{0x7b, 0xfb})) << "saturated";
}

/// Quotients of narrow integers are computed in fp32.
TEST(Integers, OfTwoBytesDivideExactly) {
  for (const int ranks :
       {1, 2, 3, 5, 7, 16, 127, 128, 255, 257, 4095, 32767, 65535, 70000, 2147483647}) {
    DeviceWork work;
    work.ranks = ranks;
    work.type = static_cast<std::uint8_t>(DataType::kUint16);
    const Sum<std::uint16_t> of_unsigned(work);
    work.type = static_cast<std::uint8_t>(DataType::kInt16);
    const Sum<std::uint16_t> of_signed(work);
    for (int value = 0; value <= 0xffff; ++value) {
      const auto stored = static_cast<std::uint16_t>(value);
      ASSERT_EQ(of_unsigned.averaged(stored), value / ranks) << value << " / " << ranks;
      const int as_signed = static_cast<std::int16_t>(stored);
      ASSERT_EQ(static_cast<std::int16_t>(of_signed.averaged(stored)), as_signed / ranks)
          << as_signed << " / " << ranks;
    }
  }
}

TEST(Minimum, OrdersZerosAndTakesNan) {
  for (const Order order : {Order::kAny, Order::kCanonical}) {
    const float nan = NAN;
    const auto of = [&](OpKind op, float left, float right) {
      Bytes a(4);
      Bytes b(4);
      std::memcpy(a.data(), &left, 4);
      std::memcpy(b.data(), &right, 4);
      float result;
      std::memcpy(&result, reduced({DataType::kFloat32, true, op, order}, {a, b}).data(), 4);
      return result;
    };
    EXPECT_TRUE(std::signbit(of(OpKind::kMin, 0.0f, -0.0f)));
    EXPECT_TRUE(std::signbit(of(OpKind::kMin, -0.0f, 0.0f)));
    EXPECT_FALSE(std::signbit(of(OpKind::kMax, 0.0f, -0.0f)));
    EXPECT_FALSE(std::signbit(of(OpKind::kMax, -0.0f, 0.0f)));
    for (const OpKind op : {OpKind::kMin, OpKind::kMax}) {
      EXPECT_TRUE(std::isnan(of(op, nan, 1.0f)));
      EXPECT_TRUE(std::isnan(of(op, -INFINITY, nan)));
    }
  }
}

}  // namespace
}  // namespace unisono::cuda
