#include "tests/support/oracle.h"

#include <algorithm>
#include <complex>
#include <cstring>

#include "unisono/float_types.h"

namespace unisono::test {
namespace {

struct Value {
  std::int64_t real = 0;
  std::int64_t imaginary = 0;
};

bool is_complex(DataType type) {
  return type == DataType::kComplex64 || type == DataType::kComplex128;
}
bool is_unsigned(DataType type) { return type >= DataType::kUint8 && type <= DataType::kUint64; }
bool is_bitwise(OpKind op) {
  return op == OpKind::kBitAnd || op == OpKind::kBitOr || op == OpKind::kBitXor ||
         op == OpKind::kUser;
}

std::uint64_t mix(Rank rank, std::size_t index) {
  std::uint64_t x =
      index * 0x9e3779b97f4a7c15ull + static_cast<std::uint64_t>(rank + 1) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 30)) * 0x94d049bb133111ebull;
  return x ^ (x >> 29);
}

// Whole numbers whose sums over eight ranks every type holds exactly: fp8 with two mantissa bits
// counts to 8 only.
std::int64_t summand(DataType type, std::uint64_t random) {
  if (is_unsigned(type)) return static_cast<std::int64_t>(random % 16);
  const int range = type == DataType::kFloat8E5m2 ? 3 : type == DataType::kFloat8E4m3 ? 4 : 16;
  const int low = type == DataType::kFloat8E5m2 || type == DataType::kFloat8E4m3 ? -1 : -7;
  return low + static_cast<std::int64_t>(random % static_cast<std::uint64_t>(range));
}

std::int64_t part_of(const Reducing& reducing, Rank rank, std::uint64_t random) {
  switch (reducing.op) {
    case OpKind::kProduct: {
      // Powers of two stay exact; at most three of eight ranks double. No zero: its sign would
      // depend on the other factors.
      const bool doubles = (random / 31) % 2 == 0 && rank % 3 == 1;
      const bool negative = !is_unsigned(reducing.type) && (random / 64) % 3 == 0;
      return (doubles ? 2 : 1) * (negative ? -1 : 1);
    }
    case OpKind::kMin:
    case OpKind::kMax: {
      const auto value = static_cast<std::int64_t>(random % 16);
      return is_unsigned(reducing.type) ? value : value - 8;
    }
    case OpKind::kLogicalAnd:
      return random % 8 == 0 ? 0 : static_cast<std::int64_t>(1 + random % 5);
    case OpKind::kLogicalOr:
      return random % 4 != 0 ? 0 : static_cast<std::int64_t>(1 + random % 5);
    case OpKind::kLogicalXor:
      return static_cast<std::int64_t>(random % 3);
    default:
      return summand(reducing.type, random);
  }
}

Value value_of(const Reducing& reducing, Rank rank, std::size_t index) {
  const std::uint64_t random = mix(rank, index);
  Value value{part_of(reducing, rank, random), 0};
  // No power of 2 + i has a part that is zero, whose sign would depend on the order.
  if (!is_complex(reducing.type)) return value;
  if (reducing.op == OpKind::kProduct) return random % 2 == 0 ? Value{2, 1} : Value{-2, -1};
  value.imaginary = part_of(reducing, rank, random >> 17);
  return value;
}

std::int64_t scalar_of(const Reducing& reducing, Rank rank) {
  if (is_unsigned(reducing.type)) return 1 + rank % 2;
  const bool narrow =
      reducing.type == DataType::kFloat8E4m3 || reducing.type == DataType::kFloat8E5m2;
  return rank % 3 == 1 ? -1 : rank % 3 == 2 && !narrow ? 2 : 1;
}

template <typename T>
void store(void* element, T value) {
  std::memcpy(element, &value, sizeof value);
}

// A whole number divided by `divisor`, as the type holds it.
void encode(DataType type, Value v, int divisor, void* element) {
  // Dividing is most of what a test computes: not what is not asked for.
  const auto whole = [&] { return divisor == 1 ? v.real : v.real / divisor; };
  const auto narrow = [&](std::int64_t part) {
    return static_cast<float>(part) / static_cast<float>(divisor);
  };
  const auto wide = [&](std::int64_t part) { return static_cast<double>(part) / divisor; };
  switch (type) {
    case DataType::kInt8:
    case DataType::kUint8:
      return store(element, static_cast<std::uint8_t>(whole()));
    case DataType::kInt16:
    case DataType::kUint16:
      return store(element, static_cast<std::uint16_t>(whole()));
    case DataType::kInt32:
    case DataType::kUint32:
      return store(element, static_cast<std::uint32_t>(whole()));
    case DataType::kInt64:
    case DataType::kUint64:
      return store(element, whole());
    case DataType::kFloat16:
      return store(element, to_float16(narrow(v.real)));
    case DataType::kBfloat16:
      return store(element, to_bfloat16(narrow(v.real)));
    case DataType::kFloat8E4m3:
      return store(element, to_float8_e4m3(narrow(v.real)));
    case DataType::kFloat8E5m2:
      return store(element, to_float8_e5m2(narrow(v.real)));
    case DataType::kFloat32:
      return store(element, narrow(v.real));
    case DataType::kFloat64:
      return store(element, wide(v.real));
    case DataType::kBool:
      return store(element, static_cast<std::uint8_t>(v.real != 0));
    case DataType::kComplex64:
      return store(element, std::complex<float>(narrow(v.real), narrow(v.imaginary)));
    case DataType::kComplex128:
      return store(element, std::complex<double>(wide(v.real), wide(v.imaginary)));
  }
}

Value combine(OpKind op, Value a, Value b) {
  switch (op) {
    case OpKind::kProduct:
      return {a.real * b.real - a.imaginary * b.imaginary,
              a.real * b.imaginary + a.imaginary * b.real};
    case OpKind::kMin:
      return {std::min(a.real, b.real), 0};
    case OpKind::kMax:
      return {std::max(a.real, b.real), 0};
    case OpKind::kLogicalAnd:
      return {a.real != 0 && b.real != 0, 0};
    case OpKind::kLogicalOr:
      return {a.real != 0 || b.real != 0, 0};
    case OpKind::kLogicalXor:
      return {(a.real != 0) != (b.real != 0), 0};
    default:
      return {a.real + b.real, a.imaginary + b.imaginary};
  }
}

// Bool reads "sum" as or and "product" as and, since its results are 0 or 1.
void write_bool(const Reducing& reducing, int last, std::size_t index, void* element) {
  int trues = 0;
  for (Rank rank = 0; rank < last; ++rank) {
    std::uint8_t byte = 0;
    write_input(reducing, rank, index, &byte);
    trues += byte != 0 ? 1 : 0;
  }
  bool result = trues > 0;
  switch (reducing.op) {
    case OpKind::kProduct:
    case OpKind::kMin:
    case OpKind::kBitAnd:
    case OpKind::kLogicalAnd:
      result = trues == last;
      break;
    case OpKind::kBitXor:
    case OpKind::kLogicalXor:
      result = trues % 2 == 1;
      break;
    default:
      break;
  }
  store(element, static_cast<std::uint8_t>(result));
}

void write_bits(const Reducing& reducing, int last, std::size_t index, void* element) {
  const std::size_t bytes = size_of(reducing.type);
  std::byte mine[16];
  auto* out = static_cast<std::byte*>(element);
  write_input(reducing, 0, index, out);
  for (Rank rank = 1; rank < last; ++rank) {
    write_input(reducing, rank, index, mine);
    for (std::size_t i = 0; i < bytes; ++i) {
      out[i] = reducing.op == OpKind::kBitAnd  ? out[i] & mine[i]
               : reducing.op == OpKind::kBitOr ? out[i] | mine[i]
                                               : out[i] ^ mine[i];
    }
  }
}

void xor_bytes(const void* in, void* inout, std::size_t count, DataType type, void*) {
  const auto* from = static_cast<const std::byte*>(in);
  auto* to = static_cast<std::byte*>(inout);
  for (std::size_t i = 0; i < count * size_of(type); ++i) to[i] ^= from[i];
}

}  // namespace

ReduceOp op_of(const Reducing& reducing, Rank rank) {
  if (reducing.op == OpKind::kUser) return ops::user_op("xor_bytes", &xor_bytes);
  if (reducing.op == OpKind::kPremultipliedSum) {
    return ops::premultiplied_sum(static_cast<double>(scalar_of(reducing, rank)));
  }
  return {reducing.op};
}

void write_input(const Reducing& reducing, Rank rank, std::size_t index, void* element) {
  const std::size_t bytes = size_of(reducing.type);
  const std::uint64_t random = mix(rank, index);
  if (reducing.type == DataType::kBool && reducing.op != OpKind::kUser) {
    // Anything but zero is true.
    const std::uint64_t share = reducing.op == OpKind::kLogicalAnd ? 8 : 3;
    const bool is_true = random % share != 0;
    return store(element, static_cast<std::uint8_t>(is_true ? 1 + (random >> 8) % 255 : 0));
  }
  if (is_bitwise(reducing.op)) {
    const std::uint64_t words[2]{random, mix(rank, index + 77)};
    std::memcpy(element, words, bytes);
    return;
  }
  encode(reducing.type, value_of(reducing, rank, index), 1, element);
}

std::vector<std::byte> input_of(const Reducing& reducing, Rank rank, std::size_t first,
                                std::size_t count) {
  const std::size_t bytes = size_of(reducing.type);
  std::vector<std::byte> data(count * bytes);
  for (std::size_t i = 0; i < count; ++i) {
    write_input(reducing, rank, first + i, data.data() + i * bytes);
  }
  return data;
}

void write_reduced(const Reducing& reducing, int last, std::size_t index, void* element) {
  if (is_bitwise(reducing.op) &&
      (reducing.type != DataType::kBool || reducing.op == OpKind::kUser)) {
    return write_bits(reducing, last, index, element);
  }
  if (reducing.type == DataType::kBool) return write_bool(reducing, last, index, element);
  const bool logical = reducing.op == OpKind::kLogicalAnd || reducing.op == OpKind::kLogicalOr ||
                       reducing.op == OpKind::kLogicalXor;
  Value result;
  for (Rank rank = 0; rank < last; ++rank) {
    Value value = value_of(reducing, rank, index);
    if (reducing.op == OpKind::kPremultipliedSum) {
      value.real *= scalar_of(reducing, rank);
      value.imaginary *= scalar_of(reducing, rank);
    }
    if (logical) value.real = value.real != 0;
    result = rank == 0 ? value : combine(reducing.op, result, value);
  }
  encode(reducing.type, result, reducing.op == OpKind::kAverage ? reducing.ranks : 1, element);
}

std::vector<std::byte> reduced_of(const Reducing& reducing, int last, std::size_t first,
                                  std::size_t count) {
  const std::size_t bytes = size_of(reducing.type);
  std::vector<std::byte> data(count * bytes);
  for (std::size_t i = 0; i < count; ++i) {
    write_reduced(reducing, last, first + i, data.data() + i * bytes);
  }
  return data;
}

std::string hex(const void* element, std::size_t bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  const auto* from = static_cast<const unsigned char*>(element);
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) {
    text += kDigits[from[i] >> 4];
    text += kDigits[from[i] & 15];
  }
  return text;
}

}  // namespace unisono::test
