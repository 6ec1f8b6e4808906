// How the values are chosen: a result may not exceed the largest integer up to which its type
// holds every integer. With few ranks the inputs share that range; with many only some ranks
// contribute anything but the neutral element.
#include "tools/perf/pattern.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>

#include "tools/perf/slots.h"
#include "unisono/float_types.h"

namespace unisono::perf {
namespace {

/// Repetitions of the period in a block: long enough for memcpy, short enough for 32 KiB of cache.
constexpr std::size_t kRepeats = 16;

/// Twos that a product may hold: 2^6 fits int8, and float8_e4m3 exactly.
constexpr int kFactorsMax = 6;

/// Largest input where nothing adds up: below the period, within every type but the 8-bit floats.
constexpr int kSpreadMax = 96;

/// Every integer up to this is exact.
int exact_limit(DataType type) {
  switch (type) {
    case DataType::kBool:
      return 1;
    case DataType::kFloat8E5m2:
      return 8;
    case DataType::kFloat8E4m3:
      return 16;
    case DataType::kInt8:
      return 127;
    case DataType::kUint8:
      return 255;
    case DataType::kBfloat16:
      return 256;
    case DataType::kFloat16:
      return 2048;
    default:
      return (1 << 15) - 1;
  }
}

bool is_complex(DataType type) {
  return type == DataType::kComplex64 || type == DataType::kComplex128;
}
bool is_integer(DataType type) { return type <= DataType::kUint64; }
bool adds_up(OpKind op) {
  return op == OpKind::kSum || op == OpKind::kAverage || op == OpKind::kPremultipliedSum;
}
bool is_logical(OpKind op) {
  return op == OpKind::kLogicalAnd || op == OpKind::kLogicalOr || op == OpKind::kLogicalXor;
}

/// True for few enough of any consecutive ranks that at most `limit` of `ranks` contribute.
bool contributes(int ranks, Rank rank, std::size_t index, int limit, int spacing_min) {
  const int spacing = std::max((ranks + limit - 1) / limit, spacing_min);
  return (static_cast<std::size_t>(rank) + index) % static_cast<std::size_t>(spacing) == 0;
}

double spread(Rank rank, std::size_t index, int largest) {
  const std::size_t mixed = (index * 7 + static_cast<std::size_t>(rank) * 13) % kPeriod;
  return static_cast<double>(mixed % (static_cast<std::size_t>(largest) + 1));
}

/// One rank's part of a sum that may not exceed `limit`.
double summand(int limit, int ranks, Rank rank, std::size_t index) {
  const int share = limit / ranks;
  if (share >= 1) return spread(rank, index, share);
  return contributes(ranks, rank, index, limit, 2) ? 1 : 0;
}

template <typename T>
void put(std::byte* target, T value) {
  std::memcpy(target, &value, sizeof value);
}

}  // namespace

Pattern::Number Pattern::value(DataType type, ReduceOp op, int ranks, Rank rank,
                               std::size_t index) {
  index %= kPeriod;
  int limit = exact_limit(type);
  if (type == DataType::kBool) return {spread(rank, index, 1)};
  if (op.kind == OpKind::kProduct) {
    return {contributes(ranks, rank, index, kFactorsMax, 2) ? 2.0 : 1.0};
  }
  if (op.kind == OpKind::kPremultipliedSum) limit /= static_cast<int>(kPremultiplier);
  // Zero and one, because a reduction over one rank may keep its input as it is.
  if (is_logical(op.kind)) return {spread(rank, index, 1)};
  const auto draw = [&](std::size_t i) {
    return adds_up(op.kind) ? summand(limit, ranks, rank, i)
                            : spread(rank, i, std::min(limit, kSpreadMax));
  };
  return {draw(index), is_complex(type) ? draw(index + 3) : 0};
}

Pattern::Number Pattern::combine(DataType type, OpKind op, Number left, Number right) {
  const bool is_bool = type == DataType::kBool;
  const auto a = static_cast<std::int64_t>(left.real);
  const auto b = static_cast<std::int64_t>(right.real);
  const auto whole = [](std::int64_t number) { return Number{static_cast<double>(number)}; };
  switch (op) {
    case OpKind::kSum:
    case OpKind::kAverage:
    case OpKind::kPremultipliedSum:
      if (is_bool) return whole(a | b);
      return {left.real + right.real, left.imaginary + right.imaginary};
    case OpKind::kProduct:
      return {left.real * right.real};  // inputs of products are real
    case OpKind::kMin:
      return whole(std::min(a, b));
    case OpKind::kMax:
      return whole(std::max(a, b));
    case OpKind::kBitAnd:
      return whole(a & b);
    case OpKind::kBitOr:
      return whole(a | b);
    case OpKind::kBitXor:
      return whole(a ^ b);
    case OpKind::kLogicalAnd:
      return whole(a != 0 && b != 0);
    case OpKind::kLogicalOr:
      return whole(a != 0 || b != 0);
    case OpKind::kLogicalXor:
      return whole((a != 0) != (b != 0));
    case OpKind::kUser:
      break;  // the tool offers none
  }
  return left;
}

Pattern::Number Pattern::average(DataType type, Number sum, int ranks) {
  const double n = ranks;
  if (is_integer(type)) return {std::trunc(sum.real / n)};
  if (type == DataType::kFloat64 || type == DataType::kComplex128) {
    return {sum.real / n, sum.imaginary / n};
  }
  // The narrow types divide in single precision and round once more when stored.
  const auto divide = [&](double x) { return static_cast<float>(x) / static_cast<float>(n); };
  return {divide(sum.real), divide(sum.imaginary)};
}

void Pattern::store(DataType type, Number number, std::byte* element) {
  const double real = number.real;
  const float narrow = static_cast<float>(real);
  switch (type) {
    case DataType::kInt8:
    case DataType::kUint8:
    case DataType::kBool:
      return put(element, static_cast<std::uint8_t>(real));
    case DataType::kInt16:
    case DataType::kUint16:
      return put(element, static_cast<std::uint16_t>(real));
    case DataType::kInt32:
    case DataType::kUint32:
      return put(element, static_cast<std::uint32_t>(real));
    case DataType::kInt64:
    case DataType::kUint64:
      return put(element, static_cast<std::uint64_t>(real));
    case DataType::kFloat16:
      return put(element, to_float16(narrow));
    case DataType::kBfloat16:
      return put(element, to_bfloat16(narrow));
    case DataType::kFloat8E4m3:
      return put(element, to_float8_e4m3(narrow));
    case DataType::kFloat8E5m2:
      return put(element, to_float8_e5m2(narrow));
    case DataType::kFloat32:
      return put(element, narrow);
    case DataType::kFloat64:
      return put(element, real);
    case DataType::kComplex64:
      return put(element, std::array<float, 2>{narrow, static_cast<float>(number.imaginary)});
    case DataType::kComplex128:
      return put(element, std::array<double, 2>{real, number.imaginary});
  }
}

Pattern::Pattern(DataType type, const std::vector<Number>& numbers)
    : type_(type), element_bytes_(size_of(type)), block_(kRepeats * kPeriod * element_bytes_) {
  for (std::size_t i = 0; i < kRepeats * kPeriod; ++i) {
    store(type_, numbers[i % kPeriod], block_.data() + i * element_bytes_);
  }
}

Pattern Pattern::input(DataType type, ReduceOp op, int ranks, Rank rank) {
  std::vector<Number> numbers(kPeriod);
  for (std::size_t i = 0; i < kPeriod; ++i) numbers[i] = value(type, op, ranks, rank, i);
  return Pattern(type, numbers);
}

Pattern Pattern::reduced(DataType type, ReduceOp op, int ranks, Rank first, Rank last) {
  std::vector<Number> numbers(kPeriod);
  for (std::size_t i = 0; i < kPeriod; ++i) {
    const double factor = op.kind == OpKind::kPremultipliedSum ? kPremultiplier : 1;
    const auto leaf = [&](Rank rank) {
      const Number number = value(type, op, ranks, rank, i);
      return Number{number.real * factor, number.imaginary * factor};
    };
    Number result = leaf(first);
    for (Rank r = first + 1; r < last; ++r) result = combine(type, op.kind, result, leaf(r));
    if (op.kind == OpKind::kAverage) result = average(type, result, ranks);
    numbers[i] = result;
  }
  return Pattern(type, numbers);
}

void Pattern::write(std::byte* target, std::size_t first_index, std::size_t count) const {
  // The first, incomplete period brings the rest to the start of the block.
  const std::size_t skipped = first_index % kPeriod;
  const std::size_t head = std::min(skipped == 0 ? 0 : kPeriod - skipped, count);
  std::memcpy(target, block_.data() + skipped * element_bytes_, head * element_bytes_);
  fill_repeating(target + head * element_bytes_, (count - head) * element_bytes_, block_.data(),
                 block_.size());
}

std::size_t Pattern::count_wrong(const std::byte* data, std::size_t first_index,
                                 std::size_t count) const {
  std::size_t wrong = 0;
  for (std::size_t at = 0; at < count;) {
    const std::size_t start = (first_index + at) % kPeriod;
    const std::size_t run = std::min(kRepeats * kPeriod - start, count - at);
    const std::byte* expected = block_.data() + start * element_bytes_;
    const std::byte* found = data + at * element_bytes_;
    if (std::memcmp(expected, found, run * element_bytes_) != 0) {
      for (std::size_t i = 0; i < run; ++i) {
        const std::size_t offset = i * element_bytes_;
        wrong += std::memcmp(expected + offset, found + offset, element_bytes_) != 0;
      }
    }
    at += run;
  }
  return wrong;
}

}  // namespace unisono::perf
