// See compute_oracle.h. Nothing here uses unisono/float_types.h or src/compute, which it judges.
#include "compute_oracle.h"

#include "compute/targets.h"
// After targets.h, which decides what it sees.
#include <hwy/targets.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>

namespace unisono::compute_test {
namespace {

constexpr SmallFormat kHalf{5, 10, true, false};
constexpr SmallFormat kBfloat{8, 7, true, false};
constexpr SmallFormat kE4m3{4, 3, false, true};
constexpr SmallFormat kE5m2{5, 2, true, true};

template <typename T>
T load(const void* from, std::size_t index) {
  T value;
  std::memcpy(&value, static_cast<const std::uint8_t*>(from) + index * sizeof(T), sizeof value);
  return value;
}
template <typename T>
void store(void* to, std::size_t index, T value) {
  std::memcpy(static_cast<std::uint8_t*>(to) + index * sizeof(T), &value, sizeof value);
}

/// Calls use(T()) with the C++ type that holds one element.
template <class Use>
void visit(DataType type, const Use& use) {
  switch (type) {
    case DataType::kInt8:
      return use(std::int8_t());
    case DataType::kInt16:
      return use(std::int16_t());
    case DataType::kInt32:
      return use(std::int32_t());
    case DataType::kInt64:
      return use(std::int64_t());
    case DataType::kUint8:
      return use(std::uint8_t());
    case DataType::kUint16:
      return use(std::uint16_t());
    case DataType::kUint32:
      return use(std::uint32_t());
    case DataType::kUint64:
      return use(std::uint64_t());
    case DataType::kFloat16:
      return use(Float16());
    case DataType::kBfloat16:
      return use(Bfloat16());
    case DataType::kFloat8E4m3:
      return use(Float8E4m3());
    case DataType::kFloat8E5m2:
      return use(Float8E5m2());
    case DataType::kFloat32:
      return use(float());
    case DataType::kFloat64:
      return use(double());
    case DataType::kBool:
      return use(std::uint8_t());
    case DataType::kComplex64:
      return use(std::complex<float>());
    case DataType::kComplex128:
      return use(std::complex<double>());
  }
}

template <typename T>
concept Small = std::is_same_v<T, Float16> || std::is_same_v<T, Bfloat16> ||
    std::is_same_v<T, Float8E4m3> || std::is_same_v<T, Float8E5m2>;
template <typename T>
concept Complex = std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;

template <Small T>
float widen(T value) {
  return static_cast<float>(small_format(data_type_of<T>)->decode(value.bits));
}
template <Small T>
T narrow(float value) {
  return T{static_cast<decltype(T::bits)>(small_format(data_type_of<T>)->encode(value))};
}

template <typename T>
T real_apply(OpKind op, T a, T b) {
  const bool x = a != 0;
  const bool y = b != 0;
  switch (op) {
    case OpKind::kSum:
      return a + b;
    case OpKind::kProduct:
      return a * b;
    case OpKind::kMin:
      if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
      return a != b ? (a < b ? a : b) : (std::signbit(a) ? a : b);
    case OpKind::kMax:
      if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
      return a != b ? (a < b ? b : a) : (std::signbit(a) ? b : a);
    case OpKind::kLogicalAnd:
      return x && y ? 1 : 0;
    case OpKind::kLogicalOr:
      return x || y ? 1 : 0;
    case OpKind::kLogicalXor:
      return x != y ? 1 : 0;
    default:
      return std::numeric_limits<T>::infinity();
  }
}

template <typename T>
T integer_apply(OpKind op, T a, T b) {
  const bool x = a != 0;
  const bool y = b != 0;
  using Wide = unsigned __int128;
  switch (op) {
    case OpKind::kSum:
      return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
    case OpKind::kProduct:
      return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
    case OpKind::kMin:
      return b < a ? b : a;
    case OpKind::kMax:
      return b < a ? a : b;
    case OpKind::kBitAnd:
      return static_cast<T>(a & b);
    case OpKind::kBitOr:
      return static_cast<T>(a | b);
    case OpKind::kBitXor:
      return static_cast<T>(a ^ b);
    case OpKind::kLogicalAnd:
      return x && y;
    case OpKind::kLogicalOr:
      return x || y;
    case OpKind::kLogicalXor:
      return x != y;
    default:
      return 0;
  }
}

std::uint8_t bool_apply(OpKind op, std::uint8_t a, std::uint8_t b) {
  const bool x = a != 0;
  const bool y = b != 0;
  switch (op) {
    case OpKind::kSum:
    case OpKind::kMax:
    case OpKind::kBitOr:
    case OpKind::kLogicalOr:
      return x || y;
    case OpKind::kProduct:
    case OpKind::kMin:
    case OpKind::kBitAnd:
    case OpKind::kLogicalAnd:
      return x && y;
    case OpKind::kBitXor:
    case OpKind::kLogicalXor:
      return x != y;
    default:
      return 0xff;
  }
}

template <typename T>
T apply(OpKind op, T a, T b) {
  if constexpr (Small<T>) {
    return narrow<T>(real_apply(op, widen(a), widen(b)));
  } else if constexpr (Complex<T>) {
    if (op == OpKind::kSum) return {a.real() + b.real(), a.imag() + b.imag()};
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
  } else if constexpr (std::is_integral_v<T>) {
    return integer_apply(op, a, b);
  } else {
    return real_apply(op, a, b);
  }
}

template <typename T>
bool same(T a, T b) {
  if constexpr (Small<T>) {
    return a.bits == b.bits || (std::isnan(widen(a)) && std::isnan(widen(b)));
  } else if constexpr (Complex<T>) {
    return same(a.real(), b.real()) && same(a.imag(), b.imag());
  } else if constexpr (std::is_floating_point_v<T>) {
    return std::memcmp(&a, &b, sizeof a) == 0 || (std::isnan(a) && std::isnan(b));
  } else {
    return a == b;
  }
}

template <typename T>
double shown(T value) {
  if constexpr (Small<T>) {
    return widen(value);
  } else if constexpr (Complex<T>) {
    return value.real();
  } else {
    return static_cast<double>(value);
  }
}

template <typename T>
T special(std::uint64_t pick) {
  constexpr std::array<double, 10> kReals = {0.0, -0.0,     1.0,       -1.0, 2.5,
                                             1e6, INFINITY, -INFINITY, NAN,  -3e-6};
  const double real = kReals[pick % kReals.size()];
  if constexpr (Small<T>) {
    return narrow<T>(static_cast<float>(real));
  } else if constexpr (Complex<T>) {
    using Part = typename T::value_type;
    return {static_cast<Part>(real), static_cast<Part>(kReals[pick / 16 % kReals.size()])};
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(real);
  } else {
    const std::array<T, 5> values = {0, 1, static_cast<T>(-1), std::numeric_limits<T>::min(),
                                     std::numeric_limits<T>::max()};
    return values[pick % values.size()];
  }
}

}  // namespace

std::vector<DataType> all_types() {
  std::vector<DataType> types;
  for (int i = 0; i < kDataTypeCount; ++i) types.push_back(static_cast<DataType>(i));
  return types;
}

std::vector<OpKind> operators_of(DataType type) {
  std::vector<OpKind> operators;
  for (int i = 0; i < kOpKindCount; ++i) {
    const auto op = static_cast<OpKind>(i);
    if (op != OpKind::kUser && is_meaningful(op, type)) operators.push_back(op);
  }
  return operators;
}

double SmallFormat::decode(std::uint32_t code) const {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(code >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = static_cast<int>(code) & ((1 << mantissa_bits) - 1);
  const double sign = (code >> (bits() - 1) & 1) != 0 ? -1.0 : 1.0;
  const bool top = exponent == (1 << exponent_bits) - 1;
  if (top && has_infinity) return mantissa == 0 ? sign * INFINITY : NAN;
  if (top && mantissa == (1 << mantissa_bits) - 1) return NAN;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

std::uint32_t SmallFormat::encode(double value) const {
  const std::uint32_t top = 1u << (bits() - 1);
  const std::uint32_t sign = std::signbit(value) ? top : 0;
  std::uint32_t largest = top - 1;  // finite
  while (!std::isfinite(decode(largest))) --largest;
  if (std::isnan(value)) return sign | (top - 1);
  const double magnitude = std::fabs(value);
  // Half a step beyond the largest value would round to the next power of two: that is overflow.
  const double step = decode(largest) - decode(largest - 1);
  if (magnitude >= decode(largest) + step / 2) return sign | (saturates ? largest : largest + 1);
  std::uint32_t low = 0;
  for (std::uint32_t high = largest + 1; high - low > 1;) {
    const std::uint32_t middle = (low + high) / 2;
    (decode(middle) <= magnitude ? low : high) = middle;
  }
  if (low == largest) return sign | low;
  const double below = magnitude - decode(low);
  const double above = decode(low + 1) - magnitude;
  if (below == above) return sign | (low % 2 == 0 ? low : low + 1);
  return sign | (below < above ? low : low + 1);
}

const SmallFormat* small_format(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return &kHalf;
    case DataType::kBfloat16:
      return &kBfloat;
    case DataType::kFloat8E4m3:
      return &kE4m3;
    case DataType::kFloat8E5m2:
      return &kE5m2;
    default:
      return nullptr;
  }
}

Bytes random_elements(DataType type, std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(count * size_of(type));
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  visit(type, [&]<typename T>(T) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t pick = random();
      if (pick % 3 == 0) store(bytes.data(), i, special<T>(pick / 4));
    }
  });
  return bytes;
}

Bytes oracle_combine(DataType type, OpKind op, const Bytes& left, const Bytes& right) {
  if (op == OpKind::kAverage || op == OpKind::kPremultipliedSum) op = OpKind::kSum;
  Bytes out(left.size());
  visit(type, [&]<typename T>(T) {
    for (std::size_t i = 0; i < left.size() / sizeof(T); ++i) {
      const T a = load<T>(left.data(), i);
      const T b = load<T>(right.data(), i);
      if constexpr (std::is_same_v<T, std::uint8_t>) {
        store(out.data(), i, type == DataType::kBool ? bool_apply(op, a, b) : apply(op, a, b));
      } else {
        store(out.data(), i, apply(op, a, b));
      }
    }
  });
  return out;
}

Bytes oracle_scale(DataType type, const Bytes& in, double scalar) {
  Bytes out(in.size());
  visit(type, [&]<typename T>(T) {
    for (std::size_t i = 0; i < in.size() / sizeof(T); ++i) {
      const T a = load<T>(in.data(), i);
      if constexpr (Small<T>) {
        store(out.data(), i, narrow<T>(widen(a) * static_cast<float>(scalar)));
      } else if constexpr (Complex<T>) {
        const auto factor = static_cast<typename T::value_type>(scalar);
        store(out.data(), i, T(a.real() * factor, a.imag() * factor));
      } else if constexpr (std::is_integral_v<T>) {
        const auto factor = static_cast<T>(static_cast<std::int64_t>(scalar));
        store(out.data(), i, integer_apply(OpKind::kProduct, a, factor));
      } else {
        store(out.data(), i, static_cast<T>(a * static_cast<T>(scalar)));
      }
    }
  });
  return out;
}

Bytes oracle_divide(DataType type, const Bytes& in, int ranks) {
  Bytes out(in.size());
  visit(type, [&]<typename T>(T) {
    for (std::size_t i = 0; i < in.size() / sizeof(T); ++i) {
      const T a = load<T>(in.data(), i);
      if constexpr (Small<T>) {
        store(out.data(), i, narrow<T>(widen(a) / static_cast<float>(ranks)));
      } else if constexpr (Complex<T>) {
        const auto divisor = static_cast<typename T::value_type>(ranks);
        store(out.data(), i, T(a.real() / divisor, a.imag() / divisor));
      } else if constexpr (std::is_integral_v<T>) {
        store(out.data(), i, static_cast<T>(static_cast<__int128>(a) / ranks));
      } else {
        store(out.data(), i, static_cast<T>(a / static_cast<T>(ranks)));
      }
    }
  });
  return out;
}

std::string first_difference(DataType type, const void* actual, const void* expected,
                             std::size_t count) {
  std::string difference;
  visit(type, [&]<typename T>(T) {
    for (std::size_t i = 0; i < count && difference.empty(); ++i) {
      const T a = load<T>(actual, i);
      const T b = load<T>(expected, i);
      if (same(a, b)) continue;
      difference = std::string(name_of(type)) + "[" + std::to_string(i) + "] is " +
                   std::to_string(shown(a)) + ", expected " + std::to_string(shown(b));
    }
  });
  return difference;
}

bool same_elements(DataType type, const void* actual, const void* expected, std::size_t count) {
  return first_difference(type, actual, expected, count).empty();
}

std::vector<std::int64_t> instruction_sets() { return hwy::SupportedAndGeneratedTargets(); }

OnlyInstructionSet::OnlyInstructionSet(std::int64_t target) {
  hwy::SetSupportedTargetsForTest(target);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}
OnlyInstructionSet::~OnlyInstructionSet() {
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace unisono::compute_test
