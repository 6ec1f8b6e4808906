// What the reduction kernels must compute, written a second time and as plainly as possible: one
// element after the other, small floats by searching all values of their format. For tests only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "unisono/types.h"

namespace unisono::compute_test {

using Bytes = std::vector<std::uint8_t>;

std::vector<DataType> all_types();
/// Every built-in operator that is meaningful on `type`.
std::vector<OpKind> operators_of(DataType type);

/// An IEEE-like format of 1 sign bit, `exponent_bits` and `mantissa_bits`.
struct SmallFormat {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;
  bool saturates;

  int bits() const { return 1 + exponent_bits + mantissa_bits; }
  double decode(std::uint32_t code) const;
  /// Nearest value by search over all codes, ties to the even code.
  std::uint32_t encode(double value) const;
};
/// Null where `type` is not one of the four narrow floats.
const SmallFormat* small_format(DataType type);

/// `count` elements: every bit pattern may occur, and special values often do.
Bytes random_elements(DataType type, std::size_t count, std::uint64_t seed);

Bytes oracle_combine(DataType type, OpKind op, const Bytes& left, const Bytes& right);
Bytes oracle_scale(DataType type, const Bytes& in, double scalar);
Bytes oracle_divide(DataType type, const Bytes& in, int ranks);

/// Equal bit for bit, where any NaN equals any NaN: which NaN results is not specified.
bool same_elements(DataType type, const void* actual, const void* expected, std::size_t count);
/// The first element that differs, for failure messages; empty when none does.
std::string first_difference(DataType type, const void* actual, const void* expected,
                             std::size_t count);

/// Each instruction set that is both compiled and present, by Highway's bit.
std::vector<std::int64_t> instruction_sets();

/// While alive, run-time dispatch sees this instruction set only.
class OnlyInstructionSet {
 public:
  explicit OnlyInstructionSet(std::int64_t target);
  ~OnlyInstructionSet();
  OnlyInstructionSet(const OnlyInstructionSet&) = delete;
  OnlyInstructionSet& operator=(const OnlyInstructionSet&) = delete;
};

}  // namespace unisono::compute_test
