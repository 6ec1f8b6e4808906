// Sums in the exact order against sums of long integers, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "compute/compute.h"
#include "compute/exact_sum.h"
#include "compute_oracle.h"
#include "made_reduction.h"
#include "tests/support/exact_oracle.h"

namespace unisono::compute {
namespace {

using namespace compute_test;
using exact_test::rounded_sum;

double decoded(DataType type, const Bytes& elements, std::size_t index) {
  if (const SmallFormat* const format = small_format(type)) {
    std::uint16_t code = 0;
    std::memcpy(&code, elements.data() + index * sizeof code, sizeof code);
    return format->decode(code);
  }
  float value = 0;
  std::memcpy(&value, elements.data() + index * sizeof value, sizeof value);
  return value;
}

void encode(DataType type, double value, Bytes& elements, std::size_t index) {
  if (const SmallFormat* const format = small_format(type)) {
    const auto code = static_cast<std::uint16_t>(format->encode(value));
    std::memcpy(elements.data() + index * sizeof code, &code, sizeof code);
    return;
  }
  const auto single = static_cast<float>(value);
  std::memcpy(elements.data() + index * sizeof single, &single, sizeof single);
}

Bytes expected_sums(DataType type, const std::vector<Bytes>& inputs, std::size_t count) {
  Bytes expected(count * size_of(type));
  std::vector<double> addends(inputs.size());
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t k = 0; k < inputs.size(); ++k) addends[k] = decoded(type, inputs[k], i);
    encode(type, rounded_sum(type, addends), expected, i);
  }
  return expected;
}

// What makes sums hard in turns, element by element; `input` and `n` place the addends.
class Addends {
 public:
  Addends(DataType type, std::uint64_t seed)
      : is_half_(type == DataType::kFloat16), random_(seed) {}

  double next(std::size_t element, int input, int n) {
    switch (element % 5) {
      case 0:  // near each other
        return uniform();
      case 1:  // far from each other
        return std::ldexp(uniform(), exponent(-140, 120));
      case 2:  // all but a little of it cancels
        if (input == n - 1 && n % 2 == 1) return std::ldexp(uniform(), exponent(-140, -60));
        if (input % 2 == 0) last_ = std::ldexp(uniform(), exponent(-20, 100));
        return input % 2 == 0 ? last_ : -last_;
      case 3: {  // ties, and almost ties
        const int exponents[] = {0, -8, -11, -12, -24, -25, -60, -120};
        return std::ldexp(coin() ? 1 : -1, exponents[random_() % std::size(exponents)]);
      }
      default:  // too small and too large for the type
        return std::ldexp(uniform(), coin() ? (is_half_ ? -14 : -126) : (is_half_ ? 16 : 128));
    }
  }

 private:
  bool coin() { return random_() % 2 == 0; }
  double uniform() { return std::uniform_real_distribution<>(-1, 1)(random_); }
  // Of fp32's range, and in fp16 of an eighth of it.
  int exponent(int low, int high) {
    return std::uniform_int_distribution<>(low, high)(random_) / (is_half_ ? 8 : 1);
  }

  bool is_half_;
  std::mt19937_64 random_;
  double last_ = 0;
};

std::vector<Bytes> hard_inputs(DataType type, int n, std::size_t count) {
  std::vector<Bytes> inputs(static_cast<std::size_t>(n), Bytes(count * size_of(type)));
  Addends addends(type, static_cast<std::uint64_t>(n) * 31 + count);
  for (std::size_t i = 0; i < count; ++i) {
    for (int k = 0; k < n; ++k) encode(type, addends.next(i, k, n), inputs[k], i);
  }
  return inputs;
}

std::vector<Bytes> any_inputs(DataType type, int n, std::size_t count) {
  std::vector<Bytes> inputs;
  for (int k = 0; k < n; ++k) inputs.push_back(random_elements(type, count, 700 + k));
  return inputs;
}

Reduction exact_reduction(DataType type, const ReduceOp& op = ops::sum, int ranks = 1) {
  return Reduction::make(type, op, ranks, Order::kExact).value();
}

Bytes sums_of(const Reduction& reduction, const std::vector<Bytes>& inputs, int alias = -1) {
  std::vector<Bytes> copies = inputs;
  copies.emplace_back(inputs[0].size());
  std::vector<const void*> pointers;
  for (std::size_t k = 0; k < inputs.size(); ++k) pointers.push_back(copies[k].data());
  Bytes& out = alias < 0 ? copies.back() : copies[static_cast<std::size_t>(alias)];
  reduction.combine_tree(out.data(), pointers.data(), static_cast<int>(inputs.size()),
                         out.size() / reduction.element_bytes(), false);
  return out;
}

class Exact : public testing::TestWithParam<DataType> {};

TEST_P(Exact, SumsAreRoundedOnceWhateverTheirAddends) {
  const DataType type = GetParam();
  for (const std::int64_t target : instruction_sets()) {
    const OnlyInstructionSet only(target);
    const Reduction reduction = exact_reduction(type);
    for (const int n : {1, 2, 3, 4, 5, 7, 8, 16, 33}) {
      for (const std::size_t count : {1, 37, 500}) {
        for (const auto& inputs : {hard_inputs(type, n, count), any_inputs(type, n, count)}) {
          SCOPED_TRACE(testing::Message()
                       << n << " ranks, " << count << " elements, " << instruction_set());
          const Bytes expected = expected_sums(type, inputs, count);
          const Bytes sums = sums_of(reduction, inputs, n - 1);
          EXPECT_EQ(first_difference(type, sums.data(), expected.data(), count), "");
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST_P(Exact, TheOrderOfTheAddendsDoesNotMatter) {
  const DataType type = GetParam();
  const Reduction reduction = exact_reduction(type);
  std::vector<Bytes> inputs = hard_inputs(type, 9, 1000);
  const Bytes first = sums_of(reduction, inputs);
  std::mt19937 random(5);
  for (int turn = 0; turn < 10; ++turn) {
    std::shuffle(inputs.begin(), inputs.end(), random);
    EXPECT_EQ(first_difference(type, sums_of(reduction, inputs).data(), first.data(), 1000), "");
  }
}

TEST_P(Exact, ThousandsOfAddends) {
  const DataType type = GetParam();
  const std::vector<Bytes> inputs = hard_inputs(type, 3000, 35);
  const Bytes expected = expected_sums(type, inputs, 35);
  const Bytes sums = sums_of(exact_reduction(type), inputs);
  EXPECT_EQ(first_difference(type, sums.data(), expected.data(), 35), "");
}

// Whichever way the neighbours in a vector take.
TEST_P(Exact, NegativeZeroStaysBesideAnything) {
  const DataType type = GetParam();
  for (const int exponent : {0, -10, -40, -120}) {
    std::vector<Bytes> inputs(3, Bytes(37 * size_of(type)));
    for (std::size_t i = 0; i < 37; ++i) {
      for (int k = 0; k < 3; ++k) {
        encode(type, i % 3 == 0 ? -0.0 : k == 1 ? std::ldexp(1, exponent) : 1, inputs[k], i);
      }
    }
    const Bytes expected = expected_sums(type, inputs, 37);
    const Bytes sums = sums_of(exact_reduction(type), inputs);
    EXPECT_EQ(first_difference(type, sums.data(), expected.data(), 37), "") << exponent;
  }
}

// More than fp64 holds on the way.
TEST_P(Exact, LargeAddendsThatCancelLeaveTheSmallestOne) {
  const DataType type = GetParam();
  const double large = type == DataType::kFloat16 ? 65504 : std::ldexp(1, 120);
  const double smallest = type == DataType::kFloat16 ? 0x1p-24 : std::ldexp(1, -120);
  std::vector<Bytes> inputs(20'001, Bytes(3 * size_of(type)));
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    for (std::size_t i = 0; i < 3; ++i) {
      encode(type, k == 15'000 ? smallest : k < 10'000 ? large : -large, inputs[k], i);
    }
  }
  const Bytes expected = expected_sums(type, inputs, 3);
  const Bytes sums = sums_of(exact_reduction(type), inputs);
  EXPECT_EQ(first_difference(type, sums.data(), expected.data(), 3), "");
}

TEST_P(Exact, AveragesDivideTheRoundedSum) {
  const DataType type = GetParam();
  const std::vector<Bytes> inputs = hard_inputs(type, 5, 200);
  const Reduction reduction = exact_reduction(type, ops::average, 5);
  Bytes averages = sums_of(reduction, inputs);
  reduction.finish(averages.data(), 200);
  const Bytes expected = oracle_divide(type, expected_sums(type, inputs, 200), 5);
  EXPECT_EQ(first_difference(type, averages.data(), expected.data(), 200), "");
}

INSTANTIATE_TEST_SUITE_P(Compute, Exact,
                         testing::Values(DataType::kFloat32, DataType::kFloat16,
                                         DataType::kBfloat16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(ExactOrder, IsTheCanonicalTreeForAllOtherTypesAndOperators) {
  for (const DataType type : all_types()) {
    const bool has_exact_sums =
        type == DataType::kFloat32 || type == DataType::kFloat16 || type == DataType::kBfloat16;
    for (const OpKind kind : operators_of(type)) {
      const bool sums =
          kind == OpKind::kSum || kind == OpKind::kAverage || kind == OpKind::kPremultipliedSum;
      if (has_exact_sums && sums) continue;
      ReduceOp op;
      op.kind = kind;
      const std::vector<Bytes> inputs = any_inputs(type, 7, 65);
      const Bytes sums_in_tree = sums_of(Reduction::make(type, op, 1).value(), inputs);
      const Bytes sums_in_exact_order = sums_of(exact_reduction(type, op), inputs);
      EXPECT_EQ(first_difference(type, sums_in_exact_order.data(), sums_in_tree.data(), 65), "")
          << name_of(kind) << " on " << name_of(type);
    }
  }
}

// One after the other, where all of them come to the same.
TEST(ExactSum, RoundsToWhatTheSumRoundsTo) {
  for (const int n : {1, 2, 3, 10, 1000}) {
    const std::vector<Bytes> inputs = hard_inputs(DataType::kFloat32, n, 100);
    for (std::size_t i = 0; i < 100; ++i) {
      ExactSum sum;
      std::vector<double> addends;
      for (const Bytes& input : inputs) {
        addends.push_back(decoded(DataType::kFloat32, input, i));
        sum.add(static_cast<float>(addends.back()));
      }
      const auto rounded = static_cast<float>(sum.rounded_to_odd());
      const auto expected = static_cast<float>(rounded_sum(DataType::kFloat32, addends));
      EXPECT_EQ(std::bit_cast<std::uint32_t>(rounded), std::bit_cast<std::uint32_t>(expected))
          << n << " addends, element " << i;
    }
  }
}

TEST(ExactSum, CarriesThroughAllOfItsWords) {
  ExactSum sum;
  const float largest = std::numeric_limits<float>::max();
  for (int i = 0; i < 5; ++i) sum.add(largest);
  sum.add(std::numeric_limits<float>::denorm_min());
  for (int i = 0; i < 5; ++i) sum.add(-largest);
  EXPECT_EQ(sum.rounded_to_odd(), std::numeric_limits<float>::denorm_min());
  sum.add(-2 * std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(sum.rounded_to_odd(), -std::numeric_limits<float>::denorm_min());
}

}  // namespace
}  // namespace unisono::compute
