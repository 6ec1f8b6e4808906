// combine_tree against a recursive reference, bit for bit, and the two ways of copying.
#include <gtest/gtest.h>

#include <cstring>

#include "compute/compute.h"
#include "compute/kernels.h"
#include "compute_oracle.h"
#include "made_reduction.h"

namespace unisono::compute {
namespace {

using namespace compute_test;

/// T(lo, hi) as the definition says it: the left part is the largest power of two below the size.
Bytes reference_tree(DataType type, OpKind op, const std::vector<Bytes>& inputs, int lo, int hi) {
  if (hi - lo == 1) return inputs[lo];
  int left = 1;
  while (left * 2 < hi - lo) left *= 2;
  return oracle_combine(type, op, reference_tree(type, op, inputs, lo, lo + left),
                        reference_tree(type, op, inputs, lo + left, hi));
}

std::vector<Bytes> inputs_of(DataType type, int n, std::size_t count) {
  std::vector<Bytes> inputs;
  for (int i = 0; i < n; ++i) inputs.push_back(random_elements(type, count, 100 + i));
  return inputs;
}

/// Runs the tree with `out` separate (alias -1) or equal to one input, all misaligned alike.
void check_tree(const Reduction& reduction, const std::vector<Bytes>& inputs, const Bytes& expected,
                int alias, bool streaming, std::size_t misalignment) {
  const std::size_t bytes = expected.size();
  std::vector<Bytes> copies;
  std::vector<const void*> pointers;
  copies.reserve(inputs.size() + 1);
  for (const Bytes& input : inputs) {
    Bytes& copy = copies.emplace_back(bytes + misalignment + 1, 0xa5);
    if (bytes != 0) std::memcpy(copy.data() + misalignment, input.data(), bytes);
    pointers.push_back(copy.data() + misalignment);
  }
  copies.emplace_back(bytes + misalignment + 1, 0xa5);
  Bytes& target = alias < 0 ? copies.back() : copies[alias];
  std::uint8_t* const out = target.data() + misalignment;
  reduction.combine_tree(out, pointers.data(), static_cast<int>(inputs.size()),
                         bytes / reduction.element_bytes(), streaming);
  EXPECT_EQ(
      first_difference(reduction.type(), out, expected.data(), bytes / reduction.element_bytes()),
      "");
  EXPECT_EQ(target.back(), 0xa5);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (static_cast<int>(i) == alias || bytes == 0) continue;
    EXPECT_EQ(std::memcmp(pointers[i], inputs[i].data(), bytes), 0) << "input " << i;
  }
}

class Tree : public testing::TestWithParam<DataType> {};

TEST_P(Tree, EqualsTheRecursiveReferenceForUpToSeventeenRanks) {
  const DataType type = GetParam();
  const Reduction reduction = reduction_of(type, ops::sum);
  for (const std::int64_t target : instruction_sets()) {
    const OnlyInstructionSet only(target);
    for (int n = 1; n <= 17; ++n) {
      for (const std::size_t count : {0, 1, 37, 5001}) {
        if (count > 1000 && n > 9) continue;
        const std::vector<Bytes> inputs = inputs_of(type, n, count);
        const Bytes expected = reference_tree(type, OpKind::kSum, inputs, 0, n);
        for (int alias = -1; alias < n; ++alias) {
          SCOPED_TRACE(testing::Message() << n << " ranks, " << count << " elements, alias "
                                          << alias << ", " << instruction_set());
          check_tree(reduction, inputs, expected, alias, false, alias < 0 ? 0 : 1);
          check_tree(reduction, inputs, expected, alias, true, size_of(type));
          if (HasFailure()) return;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Compute, Tree,
                         testing::Values(DataType::kFloat32, DataType::kFloat64, DataType::kFloat16,
                                         DataType::kBfloat16, DataType::kFloat8E4m3,
                                         DataType::kInt8, DataType::kComplex128, DataType::kBool),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(TreeOperators, EqualTheReferenceForEveryTypeAndOperator) {
  for (const DataType type : all_types()) {
    const std::vector<Bytes> inputs = inputs_of(type, 7, 65);
    for (const OpKind kind : operators_of(type)) {
      ReduceOp op;
      op.kind = kind;
      SCOPED_TRACE(testing::Message() << name_of(kind) << " on " << name_of(type));
      const Bytes expected = reference_tree(type, kind, inputs, 0, 7);
      check_tree(reduction_of(type, op), inputs, expected, -1, false, 0);
      check_tree(reduction_of(type, op), inputs, expected, 6, true, 0);
    }
  }
}

TEST(TreeRanks, MayBeThousands) {
  const std::vector<Bytes> inputs = inputs_of(DataType::kFloat32, 4096, 33);
  const Reduction reduction = reduction_of(DataType::kFloat32, ops::sum);
  for (const int n : {100, 1023, 1025, 4095, 4096}) {
    const std::vector<Bytes> some(inputs.begin(), inputs.begin() + n);
    const Bytes expected = reference_tree(DataType::kFloat32, OpKind::kSum, some, 0, n);
    check_tree(reduction, some, expected, n - 1, false, 0);
  }
}

TEST(TreeRanks, NestOverPowersOfTwo) {
  const std::vector<Bytes> inputs = inputs_of(DataType::kBfloat16, 8, 129);
  const Reduction reduction = reduction_of(DataType::kBfloat16, ops::sum);
  const auto tree = [&](const std::vector<Bytes>& some) {
    std::vector<const void*> pointers;
    for (const Bytes& bytes : some) pointers.push_back(bytes.data());
    Bytes out(some[0].size());
    reduction.combine_tree(out.data(), pointers.data(), static_cast<int>(some.size()), 129, false);
    return out;
  };
  const Bytes lower = tree({inputs[0], inputs[1], inputs[2], inputs[3]});
  const Bytes upper = tree({inputs[4], inputs[5], inputs[6], inputs[7]});
  const Bytes nested = tree({lower, upper});
  const Bytes whole = tree(inputs);
  EXPECT_TRUE(same_elements(DataType::kBfloat16, nested.data(), whole.data(), 129));
}

void subtract(const void* in, void* inout, std::size_t count, DataType, void*) {
  const auto* left = static_cast<const std::int32_t*>(in);
  auto* right = static_cast<std::int32_t*>(inout);
  for (std::size_t i = 0; i < count; ++i) right[i] = left[i] - right[i];
}

TEST(TreeOperators, KeepRankOrderForUserOperators) {
  const Reduction reduction =
      reduction_of(DataType::kInt32, ops::user_op("subtract", subtract, nullptr, false));
  const std::int32_t values[] = {100, 7, 30, 4, 1};
  std::vector<Bytes> inputs;
  for (const std::int32_t value : values) {
    Bytes& bytes = inputs.emplace_back(3000 * 4);
    for (std::size_t i = 0; i < 3000; ++i) std::memcpy(&bytes[i * 4], &value, 4);
  }
  const std::int32_t result = ((100 - 7) - (30 - 4)) - 1;
  Bytes expected(3000 * 4);
  for (std::size_t i = 0; i < 3000; ++i) std::memcpy(&expected[i * 4], &result, 4);
  for (int alias = -1; alias < 5; ++alias) {
    check_tree(reduction, inputs, expected, alias, true, 0);
    check_tree(reduction, inputs, expected, alias, false, 1);
  }
}

TEST(Copy, MovesExactlyTheBytesAskedForAtAnyAlignment) {
  const Bytes source = random_elements(DataType::kUint8, 5000, 3);
  for (const std::int64_t target : instruction_sets()) {
    const OnlyInstructionSet only(target);
    for (const auto function : {copy, copy_streaming}) {
      for (const std::size_t bytes : {0, 1, 63, 64, 65, 127, 128, 200, 4096, 4200}) {
        for (const std::size_t offset : {0, 1, 8, 63}) {
          Bytes out(5000, 0xa5);
          function(out.data() + offset, source.data() + 64 - offset, bytes);
          Bytes expected(5000, 0xa5);
          std::copy_n(source.begin() + 64 - offset, bytes, expected.begin() + offset);
          ASSERT_EQ(out, expected) << bytes << " bytes at " << offset;
        }
      }
    }
  }
}

TEST(Copy, IsTheSameBeyondTheStreamingThreshold) {
  const std::size_t bytes = kStreamBytes + 77;
  const Bytes source = random_elements(DataType::kUint8, bytes, 4);
  Bytes out(bytes + 2, 0xa5);
  copy(out.data() + 1, source.data(), bytes);
  EXPECT_EQ(std::memcmp(out.data() + 1, source.data(), bytes), 0);
  EXPECT_EQ(out.front(), 0xa5);
  EXPECT_EQ(out.back(), 0xa5);
}

}  // namespace
}  // namespace unisono::compute
