#include "tests/support/exact_oracle.h"

#include <algorithm>
#include <boost/multiprecision/cpp_int.hpp>
#include <cmath>
#include <limits>

namespace unisono::exact_test {
namespace {

using Integer = boost::multiprecision::cpp_int;

struct Format {
  int significant_bits;
  int quantum;  // of subnormals, as a power of two
  double largest;
};

Format format_of(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return {11, -24, 65504};
    case DataType::kBfloat16:
      return {8, -133, std::ldexp(255, 120)};
    default:
      return {24, -149, std::numeric_limits<float>::max()};
  }
}

constexpr int kUnit = -149;  // the integers count 2^kUnit, the smallest value of the three types

Integer in_units(double value) {
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);
  const Integer mantissa(static_cast<long long>(std::ldexp(fraction, 53)));
  const int shift = exponent - 53 - kUnit;
  return shift >= 0 ? Integer(mantissa << shift) : Integer(mantissa / (Integer(1) << -shift));
}

double rounded(const Integer& sum, const Format& format) {
  const Integer magnitude = abs(sum);
  const int bits = static_cast<int>(msb(magnitude)) + 1;
  const int dropped = std::max(bits - format.significant_bits, format.quantum - kUnit);
  if (dropped <= 0) return std::ldexp(static_cast<double>(sum), kUnit);
  const Integer quantum = Integer(1) << dropped;
  Integer kept = magnitude / quantum;
  const Integer twice_the_rest = (magnitude % quantum) * 2;
  if (twice_the_rest > quantum || (twice_the_rest == quantum && kept % 2 == 1)) ++kept;
  double value = std::ldexp(static_cast<double>(kept), dropped + kUnit);
  if (value > format.largest) value = std::numeric_limits<double>::infinity();
  return sum < 0 ? -value : value;
}

}  // namespace

double rounded_sum(DataType type, std::span<const double> addends) {
  Integer sum = 0;
  double specials = 0;
  bool all_negative_zero = true;
  for (const double addend : addends) {
    all_negative_zero = all_negative_zero && addend == 0 && std::signbit(addend);
    if (std::isfinite(addend)) {
      sum += in_units(addend);
    } else {
      specials += addend;
    }
  }
  if (specials != 0) return specials;  // an infinity, or NaN, which differs from everything
  if (sum == 0) return all_negative_zero ? -0.0 : 0.0;
  return rounded(sum, format_of(type));
}

}  // namespace unisono::exact_test
