// The data of a measurement and what must come out of it. Inputs are small integers, chosen so
// that every result is exact in its type for any order of reduction; they repeat every kPeriod
// elements, a prime, so that a block that lands in a wrong place is seen. Plain values.
#pragma once

#include <cstddef>
#include <vector>

#include "unisono/types.h"

namespace unisono::perf {

inline constexpr std::size_t kPeriod = 97;

/// The factor of every rank under the pre-multiplied sum.
inline constexpr double kPremultiplier = 2.0;

/// kPeriod elements, repeated a few times: what fill_repeating() copies.
class Pattern {
 public:
  /// Input of `rank`. Where nothing is reduced, any operator may be named.
  static Pattern input(DataType type, ReduceOp op, int ranks, Rank rank);
  /// What the operator makes of the inputs of ranks first .. last - 1, of a call among `ranks`.
  static Pattern reduced(DataType type, ReduceOp op, int ranks, Rank first, Rank last);

  /// Writes elements first_index, first_index + 1, ... of the pattern.
  void write(std::byte* target, std::size_t first_index, std::size_t count) const;
  /// How many of `count` elements differ from first_index, first_index + 1, ... of the pattern.
  std::size_t count_wrong(const std::byte* data, std::size_t first_index, std::size_t count) const;

 private:
  struct Number {
    double real = 0, imaginary = 0;
    bool operator==(const Number&) const = default;
  };
  static Number value(DataType type, ReduceOp op, int ranks, Rank rank, std::size_t index);
  static Number combine(DataType type, OpKind op, Number left, Number right);
  static Number average(DataType type, Number sum, int ranks);
  static void store(DataType type, Number number, std::byte* element);

  Pattern(DataType type, const std::vector<Number>& numbers);

  DataType type_;
  std::size_t element_bytes_;
  std::vector<std::byte> block_;
};

}  // namespace unisono::perf
