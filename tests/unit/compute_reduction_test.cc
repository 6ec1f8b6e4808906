// Every element type and operator against the oracle, on every compiled instruction set: sizes
// around each vector width, any alignment, any aliasing, and not a byte touched outside.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "compute/compute.h"
#include "compute/kernels.h"
#include "compute_oracle.h"
#include "made_reduction.h"

namespace unisono::compute {
namespace {

using namespace compute_test;

constexpr std::size_t kCounts[] = {0,  1,  2,  3,  7,  15, 16,  17,  31,
                                   32, 33, 63, 64, 65, 96, 127, 160, 1000};
constexpr std::uint8_t kGuard = 0xa5;
constexpr std::size_t kGuardBytes = 64;

ReduceOp op_of(OpKind kind) {
  ReduceOp op;
  op.kind = kind;
  return op;
}

/// A copy of some bytes at a chosen misalignment, between guard bytes.
class Guarded {
 public:
  Guarded(const Bytes& content, std::size_t misalignment)
      : bytes_(content.size()), memory_(kGuardBytes * 3 + content.size() + 64, kGuard) {
    const auto base = reinterpret_cast<std::uintptr_t>(memory_.data());
    offset_ = (base + kGuardBytes + 63) / 64 * 64 - base + misalignment;
    if (bytes_ != 0) std::memcpy(data(), content.data(), bytes_);
  }
  void* data() { return memory_.data() + offset_; }
  bool guards_intact() const {
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      const bool inside = i >= offset_ && i < offset_ + bytes_;
      if (!inside && memory_[i] != kGuard) return false;
    }
    return true;
  }

 private:
  std::size_t bytes_;
  std::size_t offset_ = 0;
  Bytes memory_;
};

enum class Alias { kNone, kLeft, kRight };

/// Runs `kernel` on copies of the operands and compares everything that could go wrong.
void check_kernel(DataType type, CombineKernel kernel, const Bytes& left, const Bytes& right,
                  const Bytes& expected, Alias alias, std::size_t misalignment) {
  const std::size_t count = left.size() / size_of(type);
  const std::size_t other = alias == Alias::kNone ? misalignment * 3 % 64 : misalignment;
  Guarded l(left, misalignment);
  Guarded r(right, other);
  Guarded separate(Bytes(left.size(), 0x11), misalignment);
  Guarded& out = alias == Alias::kLeft ? l : alias == Alias::kRight ? r : separate;
  kernel(out.data(), l.data(), r.data(), count);
  store_fence();
  EXPECT_EQ(first_difference(type, out.data(), expected.data(), count), "");
  EXPECT_TRUE(l.guards_intact() && r.guards_intact() && separate.guards_intact());
  if (alias != Alias::kLeft && !left.empty()) {
    EXPECT_EQ(std::memcmp(l.data(), left.data(), left.size()), 0);
  }
}

void check_operator(DataType type, OpKind op) {
  const OpKind combination =
      op == OpKind::kAverage || op == OpKind::kPremultipliedSum ? OpKind::kSum : op;
  CombineKernels kernels;
  for (const auto find : {find_bit_kernels, find_float_kernels, find_half_kernels,
                          find_float8_kernels, find_integer_kernels}) {
    if (kernels.plain == nullptr) kernels = find(type, combination);
  }
  ASSERT_NE(kernels.plain, nullptr);
  for (const std::size_t count : kCounts) {
    const Bytes left = random_elements(type, count, count * 2 + 1);
    const Bytes right = random_elements(type, count, count * 2 + 2);
    const Bytes expected = oracle_combine(type, op, left, right);
    for (const std::size_t misalignment : {std::size_t{0}, size_of(type), std::size_t{3}}) {
      for (const Alias alias : {Alias::kNone, Alias::kLeft, Alias::kRight}) {
        SCOPED_TRACE(testing::Message() << count << " elements, misaligned by " << misalignment
                                        << ", alias " << static_cast<int>(alias));
        check_kernel(type, kernels.plain, left, right, expected, alias, misalignment);
        if (kernels.streaming != kernels.plain) {
          check_kernel(type, kernels.streaming, left, right, expected, alias, misalignment);
        }
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

class EveryType : public testing::TestWithParam<DataType> {};

TEST_P(EveryType, CombinesLikeTheOracleOnEveryInstructionSet) {
  for (const std::int64_t target : instruction_sets()) {
    const OnlyInstructionSet only(target);
    for (const OpKind op : operators_of(GetParam())) {
      SCOPED_TRACE(testing::Message() << name_of(op) << " with " << instruction_set());
      check_operator(GetParam(), op);
    }
  }
}

TEST_P(EveryType, TouchesNoByteBehindTheEnd) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  char* pages[3];
  for (char*& base : pages) {
    base = static_cast<char*>(
        mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(base, MAP_FAILED);
    ASSERT_EQ(mprotect(base + page, page, PROT_NONE), 0);
  }
  for (const std::int64_t target : instruction_sets()) {
    const OnlyInstructionSet only(target);
    for (const OpKind op : operators_of(GetParam())) {
      const Reduction reduction = reduction_of(GetParam(), op_of(op), 3);
      for (std::size_t count = 1; count * size_of(GetParam()) <= 160; ++count) {
        const std::size_t start = page - count * size_of(GetParam());
        reduction.combine(pages[0] + start, pages[1] + start, pages[2] + start, count);
        reduction.prepare(pages[0] + start, pages[1] + start, count);
        reduction.finish(pages[0] + start, count);
      }
    }
  }
  for (char* base : pages) munmap(base, 2 * page);
}

TEST_P(EveryType, PreparesAndFinishesLikeTheOracle) {
  const DataType type = GetParam();
  for (const std::int64_t target : instruction_sets()) {
    const OnlyInstructionSet only(target);
    for (const std::size_t count : kCounts) {
      const Bytes in = random_elements(type, count, count + 7);
      Bytes out(in.size());
      if (is_meaningful(OpKind::kPremultipliedSum, type)) {
        for (const double scalar : {0.3, -2.0, 7.0, 1.0 / 3.0}) {
          reduction_of(type, ops::premultiplied_sum(scalar)).prepare(out.data(), in.data(), count);
          const Bytes expected = oracle_scale(type, in, scalar);
          ASSERT_EQ(first_difference(type, out.data(), expected.data(), count), "") << scalar;
        }
      }
      if (is_meaningful(OpKind::kAverage, type)) {
        for (const int ranks : {1, 3, 8, 1000}) {
          Bytes inout = in;
          reduction_of(type, ops::average, ranks).finish(inout.data(), count);
          const Bytes expected = oracle_divide(type, in, ranks);
          ASSERT_EQ(first_difference(type, inout.data(), expected.data(), count), "") << ranks;
        }
      }
    }
  }
}

TEST_P(EveryType, PrepareOfLogicalOperatorsGivesOneOrZero) {
  const DataType type = GetParam();
  for (const OpKind op : operators_of(type)) {
    const Reduction reduction = reduction_of(type, op_of(op));
    const bool logical = op == OpKind::kLogicalAnd || op == OpKind::kLogicalOr ||
                         op == OpKind::kLogicalXor || type == DataType::kBool;
    EXPECT_EQ(reduction.prepares(), logical || op == OpKind::kPremultipliedSum) << name_of(op);
    const Bytes in = random_elements(type, 200, 5);
    Bytes out(in.size());
    reduction.prepare(out.data(), in.data(), 200);
    if (logical) {
      const Bytes expected = oracle_combine(type, OpKind::kLogicalAnd, in, in);
      EXPECT_EQ(first_difference(type, out.data(), expected.data(), 200), "") << name_of(op);
    } else if (!reduction.prepares()) {
      EXPECT_EQ(out, in) << name_of(op);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Compute, EveryType, testing::ValuesIn(all_types()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(InstructionSets, AreAllReachedByDispatch) {
  ASSERT_FALSE(instruction_sets().empty());
  std::string previous;
  for (const std::int64_t target : instruction_sets()) {
    const OnlyInstructionSet only(target);
    EXPECT_NE(instruction_set(), previous);
    previous = instruction_set();
  }
}

/// One element, in the operand order given.
template <typename T>
T combined(OpKind op, T left, T right) {
  T out{};
  reduction_of(data_type_of<T>, op_of(op)).combine(&out, &left, &right, 1);
  return out;
}

TEST(MinAndMax, PropagateNanFromEitherSide) {
  for (const OpKind op : {OpKind::kMin, OpKind::kMax}) {
    EXPECT_TRUE(std::isnan(combined(op, NAN, 1.0f)));
    EXPECT_TRUE(std::isnan(combined(op, 1.0f, NAN)));
    EXPECT_TRUE(std::isnan(combined<double>(op, NAN, INFINITY)));
    EXPECT_EQ(combined(op, Float16{0x7e00}, Float16{0x3c00}).bits & 0x7e00, 0x7e00);
    EXPECT_EQ(combined(op, Bfloat16{0x3f80}, Bfloat16{0xffc0}).bits & 0x7fc0, 0x7fc0);
    EXPECT_EQ(combined(op, Float8E4m3{0x38}, Float8E4m3{0x7f}).bits & 0x7f, 0x7f);
  }
}

TEST(MinAndMax, TakeMinusZeroForLessThanPlusZero) {
  for (const float other : {0.0f, -0.0f}) {
    EXPECT_TRUE(std::signbit(combined(OpKind::kMin, -0.0f, other)));
    EXPECT_TRUE(std::signbit(combined(OpKind::kMin, other, -0.0f)));
    EXPECT_FALSE(std::signbit(combined(OpKind::kMax, 0.0f, other)));
    EXPECT_FALSE(std::signbit(combined(OpKind::kMax, other, 0.0f)));
  }
  EXPECT_EQ(combined(OpKind::kMin, Float16{0}, Float16{0x8000}).bits, 0x8000);
  EXPECT_EQ(combined(OpKind::kMax, Float8E5m2{0x80}, Float8E5m2{0}).bits, 0);
}

TEST(SmallFloats, RoundOnceAndSaturateInEightBits) {
  EXPECT_EQ(combined(OpKind::kSum, Float8E4m3{0x7e}, Float8E4m3{0x7e}).bits, 0x7e);
  EXPECT_EQ(combined(OpKind::kSum, Float8E5m2{0xfb}, Float8E5m2{0xfb}).bits, 0xfb);
  EXPECT_EQ(combined(OpKind::kSum, Float16{0x7bff}, Float16{0x7bff}).bits, 0x7c00);
  EXPECT_EQ(combined(OpKind::kSum, Bfloat16{0x7f7f}, Bfloat16{0x7f7f}).bits, 0x7f80);
  EXPECT_EQ(combined(OpKind::kSum, Float16{1}, Float16{1}).bits, 2) << "subnormals are numbers";
}

TEST(Products, AreRoundedBeforeTheyAreAdded) {
  // ac and bd round to the same float; a fused multiply-add would leave their rounding error.
  const float a = 1.0f + 0x1p-12f;
  const std::complex<float> square =
      combined(OpKind::kProduct, std::complex<float>(a, a), std::complex<float>(a, a));
  EXPECT_EQ(square.real(), 0.0f);
}

TEST(Integers, WrapInsteadOfOverflowing) {
  EXPECT_EQ(combined(OpKind::kSum, std::numeric_limits<std::int32_t>::max(), 1),
            std::numeric_limits<std::int32_t>::min());
  EXPECT_EQ(combined<std::int8_t>(OpKind::kProduct, 127, 127), 1);
  EXPECT_EQ(combined(OpKind::kProduct, std::numeric_limits<std::int64_t>::min(), std::int64_t{-1}),
            std::numeric_limits<std::int64_t>::min());
}

TEST(Averages, OfIntegersTruncateTowardZero) {
  std::int32_t values[] = {7, -7, 2, -2, std::numeric_limits<std::int32_t>::min()};
  reduction_of(DataType::kInt32, ops::average, 3).finish(values, 5);
  EXPECT_EQ(values[0], 2);
  EXPECT_EQ(values[1], -2);
  EXPECT_EQ(values[2], 0);
  EXPECT_EQ(values[3], 0);
  EXPECT_EQ(values[4], std::numeric_limits<std::int32_t>::min() / 3);
}

TEST(PremultipliedSum, TakesAnyScalarForIntegersWithoutUndefinedBehaviour) {
  for (const double scalar : {1e300, -1e300, double(NAN), double(INFINITY), 1e19}) {
    std::int16_t value = 3;
    reduction_of(DataType::kInt16, ops::premultiplied_sum(scalar)).prepare(&value, &value, 1);
  }
  std::uint8_t value = 3;
  reduction_of(DataType::kUint8, ops::premultiplied_sum(-1.0)).prepare(&value, &value, 1);
  EXPECT_EQ(value, 253);
}

TEST(PremultipliedSum, KeepsNanOfAScalarWithAPayload) {
  const double scalar = std::bit_cast<double>(0x7fffffffffffffffu);
  for (const DataType type : {DataType::kBfloat16, DataType::kFloat16, DataType::kFloat32}) {
    std::uint8_t bits[64] = {};
    reduction_of(type, ops::premultiplied_sum(scalar)).prepare(bits, bits, 64 / size_of(type));
    EXPECT_EQ(bits[size_of(type) - 1] & 0x7c, 0x7c) << name_of(type);
  }
}

void affine(const void* in, void* inout, std::size_t count, DataType, void* context) {
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(in) % 8, 0u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(inout) % 8, 0u);
  const auto* left = static_cast<const std::uint64_t*>(in);
  auto* right = static_cast<std::uint64_t*>(inout);
  for (std::size_t i = 0; i < count; ++i) right[i] = left[i] * 31 + right[i];
  ++*static_cast<int*>(context);
}

TEST(UserOperators, GetLeftAndRightInOrderAndAlignedWhateverAliases) {
  int calls = 0;
  const Reduction reduction =
      reduction_of(DataType::kUint64, ops::user_op("affine", affine, &calls, false));
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1500}}) {
    const Bytes left = random_elements(DataType::kUint64, count, 1);
    const Bytes right = random_elements(DataType::kUint64, count, 2);
    Bytes expected = right;
    for (std::size_t i = 0; i < count; ++i) {
      std::uint64_t l, r;
      std::memcpy(&l, &left[i * 8], 8);
      std::memcpy(&r, &right[i * 8], 8);
      r += l * 31;
      std::memcpy(&expected[i * 8], &r, 8);
    }
    for (const std::size_t misalignment : {0, 8, 3}) {
      Guarded l(left, misalignment), r(right, misalignment);
      Guarded out(Bytes(count * 8), misalignment);
      reduction.combine(out.data(), l.data(), r.data(), count);
      EXPECT_TRUE(same_elements(DataType::kUint64, out.data(), expected.data(), count));
      Guarded in_left(left, misalignment);
      reduction.combine(in_left.data(), in_left.data(), r.data(), count);
      EXPECT_TRUE(same_elements(DataType::kUint64, in_left.data(), expected.data(), count));
      reduction.combine(r.data(), l.data(), r.data(), count);
      EXPECT_TRUE(same_elements(DataType::kUint64, r.data(), expected.data(), count));
      EXPECT_TRUE(l.guards_intact() && r.guards_intact() && out.guards_intact());
    }
  }
  EXPECT_GT(calls, 0);
}

TEST(MakeReduction, RefusesWhatHasNoMeaning) {
  const auto code = [](DataType type, const ReduceOp& op, int ranks) {
    return Reduction::make(type, op, ranks).status().code();
  };
  EXPECT_EQ(code(DataType::kFloat32, ops::bit_and, 2), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(DataType::kComplex64, ops::min, 2), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(DataType::kBool, ops::average, 2), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(DataType::kInt8, ops::user_op("nothing", nullptr), 2),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(DataType::kInt8, ops::user_op(nullptr, affine), 2), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(DataType::kInt8, ops::average, 0), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(static_cast<DataType>(99), ops::sum, 2), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(DataType::kInt8, op_of(static_cast<OpKind>(99)), 2), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(DataType::kInt8, ops::sum, 2), ErrorCode::kOk);
}

TEST(MakeReduction, AcceptsExactlyTheMeaningfulPairs) {
  for (const DataType type : all_types()) {
    for (int kind = 0; kind < kOpKindCount - 1; ++kind) {
      const auto op = static_cast<OpKind>(kind);
      EXPECT_EQ(Reduction::make(type, op_of(op), 2).has_value(), is_meaningful(op, type))
          << name_of(op) << " on " << name_of(type);
    }
  }
}

}  // namespace
}  // namespace unisono::compute
