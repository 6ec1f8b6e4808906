// Conversions between float and the element types that C++ has no built-in for: Float16, Bfloat16,
// Float8E4m3, Float8E5m2. Portable integer arithmetic, constexpr, no state: usable from any thread.
// Narrowing rounds to nearest, ties to even, whatever the rounding mode of the processor.
// Overflow becomes infinity in the 16-bit types and the largest finite value in the 8-bit types
// (infinities too). NaN stays NaN and becomes quiet. Widening is exact.
#pragma once

#include <bit>
#include <cstdint>

#include "unisono/types.h"

namespace unisono {
namespace detail {

/// A format of 1 sign bit, then exponent, then mantissa. `largest` is the magnitude that overflow
/// becomes: infinity or the largest finite value.
template <int kExponentBits, int kMantissaBits, std::uint32_t kLargest, bool kHasInfinity>
struct SmallFloat {
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kDroppedBits = 23 - kMantissaBits;
  static constexpr std::uint32_t kMagnitudeMask = (1u << (kExponentBits + kMantissaBits)) - 1;
  /// First magnitude that is not a finite number.
  static constexpr std::uint32_t kInfinity =
      kHasInfinity ? ((1u << kExponentBits) - 1) << kMantissaBits : kMagnitudeMask;

  static constexpr float decode(std::uint32_t code) {
    const std::uint32_t magnitude = code & kMagnitudeMask;
    const std::uint32_t sign = (code & (kMagnitudeMask + 1)) != 0 ? 0x80000000u : 0u;
    std::uint32_t bits = (magnitude << kDroppedBits) + ((127u - kBias) << 23);
    if (kHasInfinity && magnitude == kInfinity) {
      bits = 0x7f800000u;
    } else if (magnitude >= kInfinity) {
      bits = 0x7fc00000u | (kHasInfinity ? magnitude << kDroppedBits & 0x7fffffu : 0u);
    } else if (magnitude < (1u << kMantissaBits)) {  // subnormal: an integer times a power of two
      constexpr std::uint32_t kQuantum = (128u - kBias - kMantissaBits) << 23;
      bits = std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) *
                                          std::bit_cast<float>(kQuantum));
    }
    return std::bit_cast<float>(sign | bits);
  }

  static constexpr std::uint32_t encode(float value) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = bits >> 31 != 0 ? kMagnitudeMask + 1 : 0u;
    const std::uint32_t absolute = bits & 0x7fffffffu;
    if (absolute > 0x7f800000u) {
      const std::uint32_t payload = (absolute & 0x7fffffu) >> kDroppedBits;
      return sign | (kHasInfinity ? kInfinity | 1u << (kMantissaBits - 1) | payload : kInfinity);
    }
    const std::uint32_t exponent = absolute >> 23;
    std::uint32_t magnitude = 0;
    if (exponent > 127u - kBias) {
      magnitude = shift_to_even(absolute, kDroppedBits) - ((127u - kBias) << kMantissaBits);
    } else {  // below the smallest normal number: count the subnormal quanta
      const std::uint32_t mantissa = (absolute & 0x7fffffu) | (exponent != 0 ? 0x800000u : 0u);
      magnitude = shift_to_even(mantissa, kDroppedBits + 128 - kBias - static_cast<int>(exponent));
    }
    return sign | (magnitude > kLargest ? kLargest : magnitude);
  }

 private:
  static constexpr std::uint32_t shift_to_even(std::uint32_t value, int bits) {
    if (bits > 25) return 0;  // less than half a quantum
    const std::uint32_t odd = value >> bits & 1u;
    return (value + (1u << (bits - 1)) - 1u + odd) >> bits;
  }
};

using SmallFloat16 = SmallFloat<5, 10, 0x7c00, true>;
using SmallFloat8E4m3 = SmallFloat<4, 3, 0x7e, false>;
using SmallFloat8E5m2 = SmallFloat<5, 2, 0x7b, true>;

}  // namespace detail

constexpr float to_float(Float16 value) { return detail::SmallFloat16::decode(value.bits); }
constexpr float to_float(Float8E4m3 value) { return detail::SmallFloat8E4m3::decode(value.bits); }
constexpr float to_float(Float8E5m2 value) { return detail::SmallFloat8E5m2::decode(value.bits); }
constexpr float to_float(Bfloat16 value) {
  const std::uint32_t bits = static_cast<std::uint32_t>(value.bits) << 16;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return std::bit_cast<float>(is_nan ? bits | 0x400000u : bits);
}

constexpr Float16 to_float16(float value) {
  return {static_cast<std::uint16_t>(detail::SmallFloat16::encode(value))};
}
constexpr Float8E4m3 to_float8_e4m3(float value) {
  return {static_cast<std::uint8_t>(detail::SmallFloat8E4m3::encode(value))};
}
constexpr Float8E5m2 to_float8_e5m2(float value) {
  return {static_cast<std::uint8_t>(detail::SmallFloat8E5m2::encode(value))};
}
constexpr Bfloat16 to_bfloat16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>(bits >> 16 | 0x40u)};
  return {static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

/// from_float<T>(x): the same four by type, and the identity for float; for templates.
template <typename T>
constexpr T from_float(float value) = delete;
template <>
constexpr float from_float<float>(float value) {
  return value;
}
template <>
constexpr Float16 from_float<Float16>(float value) {
  return to_float16(value);
}
template <>
constexpr Bfloat16 from_float<Bfloat16>(float value) {
  return to_bfloat16(value);
}
template <>
constexpr Float8E4m3 from_float<Float8E4m3>(float value) {
  return to_float8_e4m3(value);
}
template <>
constexpr Float8E5m2 from_float<Float8E5m2>(float value) {
  return to_float8_e5m2(value);
}

}  // namespace unisono
