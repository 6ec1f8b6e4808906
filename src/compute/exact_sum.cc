#include "compute/exact_sum.h"

#include <bit>
#include <cmath>
#include <cstddef>

namespace unisono::compute {
namespace {

constexpr int kLowestExponent = -149;
constexpr int kMantissaBits = 53;  // of fp64

/// Adds value * 2^(64 * word), or subtracts it.
template <std::size_t N>
void add_at(std::array<std::uint64_t, N>& words, std::size_t word, std::uint64_t value,
            bool subtracts) {
  for (std::size_t i = word; i < N && value != 0; ++i) {
    const bool carries = subtracts ? __builtin_sub_overflow(words[i], value, &words[i])
                                   : __builtin_add_overflow(words[i], value, &words[i]);
    value = carries ? 1 : 0;
  }
}

template <std::size_t N>
std::array<std::uint64_t, N> negated(const std::array<std::uint64_t, N>& words) {
  std::array<std::uint64_t, N> result{};
  for (std::size_t i = 0; i < N; ++i) add_at(result, i, words[i], true);
  return result;
}

}  // namespace

void ExactSum::add(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  is_negative_zero_ = is_negative_zero_ && bits == 0x80000000u;
  const std::uint32_t exponent = bits >> 23 & 0xff;
  if (exponent == 0xff) {
    specials_ += value;
    has_special_ = true;
    return;
  }
  const std::uint64_t mantissa = (bits & 0x7fffff) | (exponent == 0 ? 0 : 1u << 23);
  const std::uint32_t position = exponent == 0 ? 0 : exponent - 1;
  const std::uint32_t shift = position % 64;
  const bool is_negative = bits >> 31 != 0;
  add_at(words_, position / 64, mantissa << shift, is_negative);
  if (shift > 64 - 24) add_at(words_, position / 64 + 1, mantissa >> (64 - shift), is_negative);
}

double ExactSum::rounded_to_odd() const {
  if (has_special_) return specials_;
  const bool is_negative = words_.back() >> 63 != 0;
  const auto words = is_negative ? negated(words_) : words_;
  std::size_t top = words.size();
  while (top > 0 && words[top - 1] == 0) --top;
  if (top == 0) return is_negative_zero_ ? -0.0 : 0.0;
  const int highest = static_cast<int>(top) * 64 - 1 - std::countl_zero(words[top - 1]);
  const int dropped = highest < kMantissaBits ? 0 : highest + 1 - kMantissaBits;
  const auto from = static_cast<std::size_t>(dropped / 64);
  const int shift = dropped % 64;
  std::uint64_t mantissa = words[from] >> shift;
  if (shift > 64 - kMantissaBits && from + 1 < words.size()) {
    mantissa |= words[from + 1] << (64 - shift);
  }
  mantissa &= (std::uint64_t{1} << kMantissaBits) - 1;
  bool is_inexact = shift > 0 && words[from] << (64 - shift) != 0;
  for (std::size_t i = 0; i < from; ++i) is_inexact = is_inexact || words[i] != 0;
  if (is_inexact) mantissa |= 1;
  const double magnitude = std::ldexp(static_cast<double>(mantissa), dropped + kLowestExponent);
  return is_negative ? -magnitude : magnitude;
}

}  // namespace unisono::compute
