// The exact sum of any number of fp32 values: a fixed-point number as wide as their whole range, a
// long accumulator as Kulisch describes it (Computer Arithmetic and Validity, 2013). For the few
// sums that the vector kernels cannot do exactly in fp64. Thread rule: a value.
#pragma once

#include <array>
#include <cstdint>

namespace unisono::compute {

class ExactSum {
 public:
  /// At most 2^40 values.
  void add(float value);
  /// The sum rounded to odd: the neighbour in fp64 whose last bit is 1 where it lies between two,
  /// so that rounding that to fp32 or narrower gives what rounding the sum itself gives (Boldo and
  /// Melquiond, 2008). Infinity and NaN as IEEE addition has them; -0 where all values are -0.
  double rounded_to_odd() const;

 private:
  // Two's complement; the lowest bit is 2^-149, the smallest fp32. 277 bits, and 40 of carry.
  std::array<std::uint64_t, 5> words_{};
  double specials_ = 0;  // the sum of infinities and NaN
  bool has_special_ = false;
  bool is_negative_zero_ = true;
};

}  // namespace unisono::compute
