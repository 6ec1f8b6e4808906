// The operators of the kernels over what is stored: what a leaf, a node and the root of the
// canonical tree are. One struct for each kernel; operators and types that differ in constants
// alone (min and max, signed and unsigned, the bitwise and logical operators) share one and read
// the constants from the DeviceWork.
//
// Host and device code. Values.
#pragma once

#include "cuda/kernels/device_work.h"
#include "cuda/kernels/elements.h"

namespace unisono::cuda {

UNISONO_HOST_DEVICE bool is_signed_type(std::uint8_t type) {
  return type <= static_cast<std::uint8_t>(DataType::kInt64);
}

struct Add {
  template <typename T>
  static UNISONO_HOST_DEVICE T apply(T left, T right) {
    return add(left, right);
  }
};
struct Multiply {
  template <typename T>
  static UNISONO_HOST_DEVICE T apply(T left, T right) {
    return multiply(left, right);
  }
};

/// Nodes of fp16, bf16 and fp8: in fp32 until the root, or rounded each.
enum class Nodes : std::uint8_t { kWide, kRounded };

/// Leaves and nodes of an operator that computes with numbers.
template <typename T, class Op, Nodes kNodes>
struct Numbers {
  using Stored = T;
  static constexpr bool kWide = kIsSmallFloat<T> && kNodes == Nodes::kWide;
  using Node = std::conditional_t<kWide, float, T>;

  UNISONO_HOST_DEVICE Node leaf(Stored value) const {
    if constexpr (kWide) {
      return widen(value);
    } else {
      return value;
    }
  }
  UNISONO_HOST_DEVICE Node combine(Node left, Node right) const {
    if constexpr (kIsSmallFloat<Node>) {
      return narrow<T>(Op::apply(widen(left), widen(right)));
    } else {
      return Op::apply(left, right);
    }
  }
  UNISONO_HOST_DEVICE Stored root(Node value) const {
    if constexpr (kWide) {
      return narrow<T>(value);
    } else {
      return value;
    }
  }
  /// The result over one input: not even rounded, which would make infinities of fp8 finite.
  UNISONO_HOST_DEVICE Stored alone(Stored value) const { return value; }
};

/// Sum, average and pre-multiplied sum. Integers are stored unsigned, whatever their type.
template <typename T, Nodes kNodes = Nodes::kWide>
struct Sum : Numbers<T, Add, kNodes> {
  using typename Numbers<T, Add, kNodes>::Node;
  static constexpr bool kScales = true;

  explicit UNISONO_HOST_DEVICE Sum(const DeviceWork& work)
      : ranks(work.ranks), is_signed(is_signed_type(work.type)) {}

  /// A pre-multiplication scalar as the bits of what scaled() multiplies by.
  static UNISONO_HOST_DEVICE std::uint64_t factor_of(double scalar) {
    if constexpr (std::is_integral_v<T>) {
      return wrapped(scalar);
    } else if constexpr (std::is_same_v<T, double>) {
      return bits_as<std::uint64_t>(scalar);
    } else {
      return bits_as<std::uint32_t>(static_cast<float>(scalar));
    }
  }
  UNISONO_HOST_DEVICE T scaled(T value, std::uint64_t factor) const {
    if constexpr (kIsSmallFloat<T>) {
      return narrow<T>(multiply(widen(value), bits_as<float>(static_cast<std::uint32_t>(factor))));
    } else {
      return multiply(value, bits_as<T>(static_cast<BitsOf<sizeof(T)>>(factor)));
    }
  }
  UNISONO_HOST_DEVICE T averaged(Node sum) const {
    if constexpr (std::is_same_v<Node, float> || std::is_same_v<Node, double>) {
      return this->root(divide(sum, static_cast<Node>(ranks)));
    } else if constexpr (kIsSmallFloat<T>) {
      return narrow<T>(divide(widen(sum), static_cast<float>(ranks)));
    } else if (is_signed) {
      return quotient<std::make_signed_t<T>>(sum);
    } else {
      return quotient<T>(sum);
    }
  }

  /// Truncated toward zero. The number of ranks may be more than T can hold. Quotients of 16 bits
  /// are exact in fp32: none is so near to the next integer that it could be rounded to it.
  template <typename Integer>
  UNISONO_HOST_DEVICE T quotient(T sum) const {
    const auto dividend = static_cast<Integer>(sum);
    if constexpr (sizeof(T) <= 2) {
      const float rounded = divide(static_cast<float>(dividend), static_cast<float>(ranks));
      return static_cast<T>(static_cast<std::int32_t>(rounded));
    } else {
      using Wide = std::conditional_t<std::is_signed_v<Integer>, std::int64_t, std::uint64_t>;
      using Divisor = std::conditional_t<sizeof(T) == 8, Wide, Integer>;
      return static_cast<T>(dividend / static_cast<Divisor>(ranks));
    }
  }

  std::int32_t ranks;
  bool is_signed;
};

template <typename T, Nodes kNodes = Nodes::kWide>
struct Product : Numbers<T, Multiply, kNodes> {
  static constexpr bool kScales = false;
  explicit UNISONO_HOST_DEVICE Product(const DeviceWork&) {}
};

/// Minimum; the maximum is the minimum of the negated (floats) or inverted (integers) values, and
/// signed numbers are ordered like unsigned ones with the sign bit inverted: all one mask of bits.
/// Nodes are exact, so they need no rounding, and one kernel serves both orders.
template <typename T>
struct MinMax {
  using Stored = T;
  using Bits = BitsOf<sizeof(T)>;
  using Node = std::conditional_t<kIsSmallFloat<T>, float, T>;
  static constexpr bool kScales = false;
  static constexpr Bits kTopBit = static_cast<Bits>(Bits{1} << (8 * sizeof(T) - 1));

  explicit UNISONO_HOST_DEVICE MinMax(const DeviceWork& work) : mask(0) {
    const bool is_max = work.op == static_cast<std::uint8_t>(OpKind::kMax);
    if constexpr (kIsFloat<T>) {
      mask = is_max ? kTopBit : Bits{0};
    } else {
      mask = is_max ? static_cast<Bits>(~Bits{0}) : Bits{0};
      if (is_signed_type(work.type)) mask = static_cast<Bits>(mask ^ kTopBit);
    }
  }

  UNISONO_HOST_DEVICE Node leaf(Stored value) const {
    if constexpr (kIsSmallFloat<T>) {
      return widen(masked(value));
    } else {
      return masked(value);
    }
  }
  UNISONO_HOST_DEVICE Node combine(Node left, Node right) const { return minimum(left, right); }
  UNISONO_HOST_DEVICE Stored root(Node value) const {
    if constexpr (kIsSmallFloat<T>) {
      return masked(narrow<T>(value));
    } else {
      return masked(value);
    }
  }
  UNISONO_HOST_DEVICE Stored alone(Stored value) const { return value; }

  UNISONO_HOST_DEVICE Stored masked(Stored value) const {
    return bits_as<Stored>(static_cast<Bits>(bits_as<Bits>(value) ^ mask));
  }

  Bits mask;
};

/// Bitwise and logical operators, and all of bool, on the bits of any type. Logical ones read an
/// element as "is not zero" and compute with the type's 1 and 0, which the bitwise ones map alike.
template <typename T>
struct Bitwise {
  using Stored = T;
  using Node = T;
  static constexpr bool kScales = false;

  explicit UNISONO_HOST_DEVICE Bitwise(const DeviceWork& work)
      : both(0), either(0), one(one_of(work.type)), significant(static_cast<T>(~T{0})) {
    const auto type = static_cast<DataType>(work.type);
    const auto op = static_cast<OpKind>(work.op);
    const bool is_xor = op == OpKind::kBitXor || op == OpKind::kLogicalXor;
    const bool is_and = op == OpKind::kBitAnd || op == OpKind::kLogicalAnd ||
                        op == OpKind::kProduct || op == OpKind::kMin;
    if (!is_xor) both = static_cast<T>(~T{0});
    if (!is_and) either = static_cast<T>(~T{0});
    logical = type == DataType::kBool || op == OpKind::kLogicalAnd || op == OpKind::kLogicalOr ||
              op == OpKind::kLogicalXor;
    if (one != 1) significant = static_cast<T>(significant >> 1);  // -0 of a float is zero
  }

  UNISONO_HOST_DEVICE Node leaf(Stored value) const {
    if (!logical) return value;
    return (value & significant) != 0 ? one : T{0};
  }
  /// a & b, a ^ b, or their exclusive or, which is a | b.
  UNISONO_HOST_DEVICE Node combine(Node left, Node right) const {
    return static_cast<T>((left & right & both) ^ ((left ^ right) & either));
  }
  UNISONO_HOST_DEVICE Stored root(Node value) const { return value; }
  UNISONO_HOST_DEVICE Stored alone(Stored value) const { return leaf(value); }

  /// The bits of 1. No float's 1 has the bits of the integer 1.
  static UNISONO_HOST_DEVICE T one_of(std::uint8_t type) {
    switch (static_cast<DataType>(type)) {
      case DataType::kFloat16:
        return static_cast<T>(0x3c00);
      case DataType::kBfloat16:
        return static_cast<T>(0x3f80);
      case DataType::kFloat8E4m3:
        return static_cast<T>(0x38);
      case DataType::kFloat8E5m2:
        return static_cast<T>(0x3c);
      case DataType::kFloat32:
        return static_cast<T>(0x3f800000);
      case DataType::kFloat64:
        return static_cast<T>(0x3ff0000000000000);
      default:
        return 1;
    }
  }

  T both;
  T either;
  T one;
  T significant;
  bool logical;
};

}  // namespace unisono::cuda
