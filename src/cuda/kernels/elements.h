// How one element is stored, widened, rounded and moved, the same on host and device: bit for bit
// what the kernels of src/compute do (README.md there, "Rules of the arithmetic").
//
// Host and device code. Pure functions. Types are read and written through memcpy and units of
// known alignment, never through a pointer to another type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cuda/kernels/host_device.h"
#include "unisono/float_types.h"
#include "unisono/types.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
/// In front of a loop whose arrays must become registers, or of one that must stay a loop.
#define UNISONO_UNROLLED _Pragma("unroll")
#define UNISONO_ROLLED _Pragma("unroll 1")
#else
#define UNISONO_UNROLLED
#define UNISONO_ROLLED
#endif

namespace unisono::cuda {

template <typename To, typename From>
UNISONO_HOST_DEVICE To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From) && std::is_trivially_copyable_v<To>);
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

template <int kBytes>
using BitsOf = std::conditional_t<
    kBytes == 1, std::uint8_t,
    std::conditional_t<kBytes == 2, std::uint16_t,
                       std::conditional_t<kBytes == 4, std::uint32_t, std::uint64_t>>>;

template <typename T>
struct Complex {
  T real;
  T imaginary;
};

template <typename T>
inline constexpr bool kIsSmallFloat =
    std::is_same_v<T, Float16> || std::is_same_v<T, Bfloat16> || std::is_same_v<T, Float8E4m3> ||
    std::is_same_v<T, Float8E5m2>;
template <typename T>
inline constexpr bool kIsFloat = kIsSmallFloat<T> || std::is_floating_point_v<T>;

/// Exact. The device's conversion instructions and the integer code of float_types.h agree on every
/// value but the payload of NaN, which is not specified.
UNISONO_HOST_DEVICE float widen(Float16 value) {
#ifdef __CUDA_ARCH__
  return __half2float(__ushort_as_half(value.bits));
#else
  return to_float(value);
#endif
}
UNISONO_HOST_DEVICE float widen(Bfloat16 value) {
  return bits_as<float>(static_cast<std::uint32_t>(value.bits) << 16);
}
UNISONO_HOST_DEVICE float widen(Float8E4m3 value) {
#ifdef __CUDA_ARCH__
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(value.bits, __NV_E4M3)));
#else
  return to_float(value);
#endif
}
UNISONO_HOST_DEVICE float widen(Float8E5m2 value) {
  // The upper byte of an fp16.
  return widen(Float16{static_cast<std::uint16_t>(value.bits << 8)});
}

/// To nearest, ties to even. Overflow: infinity in the 16-bit types, the largest finite value in
/// the 8-bit types, infinities included.
template <typename T>
UNISONO_HOST_DEVICE T narrow(float value) {
#ifdef __CUDA_ARCH__
  if constexpr (std::is_same_v<T, Float16>) {
    return {__half_as_ushort(__float2half_rn(value))};
  } else if constexpr (std::is_same_v<T, Bfloat16>) {
    return {__bfloat16_as_ushort(__float2bfloat16_rn(value))};
  } else if constexpr (std::is_same_v<T, Float8E4m3>) {
    return {__nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3)};
  } else {
    return {__nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E5M2)};
  }
#else
  return from_float<T>(value);
#endif
}

/// Sums and products that no compiler contracts to a fused multiply-add.
template <typename T>
UNISONO_HOST_DEVICE T add(T left, T right) {
#ifdef __CUDA_ARCH__
  if constexpr (std::is_same_v<T, float>) return __fadd_rn(left, right);
  if constexpr (std::is_same_v<T, double>) return __dadd_rn(left, right);
#endif
  return static_cast<T>(left + right);
}
template <typename T>
UNISONO_HOST_DEVICE T multiply(T left, T right) {
#ifdef __CUDA_ARCH__
  if constexpr (std::is_same_v<T, float>) return __fmul_rn(left, right);
  if constexpr (std::is_same_v<T, double>) return __dmul_rn(left, right);
#endif
  // Narrow unsigned numbers would become int, whose overflow is undefined.
  if constexpr (std::is_integral_v<T>) return static_cast<T>(1u * left * right);
  return left * right;
}
template <typename T>
UNISONO_HOST_DEVICE Complex<T> multiply(Complex<T> left, Complex<T> right) {
  return {add(multiply(left.real, right.real), -multiply(left.imaginary, right.imaginary)),
          add(multiply(left.real, right.imaginary), multiply(left.imaginary, right.real))};
}
template <typename T>
UNISONO_HOST_DEVICE T divide(T left, T right) {
#ifdef __CUDA_ARCH__
  if constexpr (std::is_same_v<T, float>) return __fdiv_rn(left, right);
  if constexpr (std::is_same_v<T, double>) return __ddiv_rn(left, right);
#endif
  return static_cast<T>(left / right);
}

/// NaN propagates, -0 < +0: numbers that compare equal differ in nothing but the sign of zero,
/// which the OR of their bits makes negative.
template <typename T>
UNISONO_HOST_DEVICE T minimum(T left, T right) {
  if constexpr (std::is_integral_v<T>) {
    return right < left ? right : left;
  } else {
    using Bits = BitsOf<sizeof(T)>;
    T least = left < right ? left : right;
    if (left == right) least = bits_as<T>(Bits(bits_as<Bits>(left) | bits_as<Bits>(right)));
    return left != left ? left : least;
  }
}

/// A pre-multiplication scalar as an integer: toward zero and modulo 2^64; what lies beyond 64 bits
/// becomes the nearest limit, NaN zero.
UNISONO_HOST_DEVICE std::uint64_t wrapped(double scalar) {
  constexpr double kTwoTo63 = 9223372036854775808.0;
  if (!(scalar == scalar)) return 0;
  if (scalar >= 2 * kTwoTo63) return ~std::uint64_t{0};
  if (scalar >= kTwoTo63) return static_cast<std::uint64_t>(scalar);
  if (scalar <= -kTwoTo63) return std::uint64_t{1} << 63;
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(scalar));
}

/// What one memory instruction moves.
template <int kBytes>
struct alignas(kBytes) Unit {
  using Word = BitsOf<kBytes >= 4 ? 4 : kBytes>;
  Word words[kBytes / sizeof(Word)];
};

/// `from` is a multiple of kBytes. On the device one load of that width; the host has no such type
/// in its memory, so it copies bytes.
template <int kBytes>
UNISONO_HOST_DEVICE Unit<kBytes> load_unit(const void* from) {
#ifdef __CUDA_ARCH__
  return *static_cast<const Unit<kBytes>*>(from);
#else
  Unit<kBytes> unit;
  std::memcpy(&unit, from, kBytes);
  return unit;
#endif
}
template <int kBytes>
UNISONO_HOST_DEVICE void store_unit(void* to, const Unit<kBytes>& unit) {
#ifdef __CUDA_ARCH__
  *static_cast<Unit<kBytes>*>(to) = unit;
#else
  std::memcpy(to, &unit, kBytes);
#endif
}

/// The alignment that lets an element be moved by instructions of its own width: complex numbers
/// are aligned like their parts.
template <typename T>
inline constexpr int kElementAlignment = sizeof(T) < 8 ? int{sizeof(T)} : 8;

/// One element; byte by byte where it is not `aligned` to kElementAlignment.
template <typename T>
UNISONO_HOST_DEVICE T load_element(const void* from, bool aligned) {
  constexpr int kWidth = kElementAlignment<T>;
  const auto* const bytes = static_cast<const std::byte*>(from);
  T value;
  if (aligned) {
    Unit<kWidth> units[sizeof(T) / kWidth];
    for (std::size_t i = 0; i < sizeof(T) / kWidth; ++i)
      units[i] = load_unit<kWidth>(bytes + i * kWidth);
    std::memcpy(&value, units, sizeof value);
  } else {
    Unit<1> units[sizeof(T)];
    for (std::size_t i = 0; i < sizeof(T); ++i) units[i] = load_unit<1>(bytes + i);
    std::memcpy(&value, units, sizeof value);
  }
  return value;
}
template <typename T>
UNISONO_HOST_DEVICE void store_element(void* to, const T& value, bool aligned) {
  constexpr int kWidth = kElementAlignment<T>;
  auto* const bytes = static_cast<std::byte*>(to);
  if (aligned) {
    Unit<kWidth> units[sizeof(T) / kWidth];
    std::memcpy(units, &value, sizeof value);
    for (std::size_t i = 0; i < sizeof(T) / kWidth; ++i) store_unit(bytes + i * kWidth, units[i]);
  } else {
    Unit<1> units[sizeof(T)];
    std::memcpy(units, &value, sizeof value);
    for (std::size_t i = 0; i < sizeof(T); ++i) store_unit(bytes + i, units[i]);
  }
}

}  // namespace unisono::cuda
