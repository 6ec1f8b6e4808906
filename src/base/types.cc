#include "unisono/types.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <utility>

#include "base/collective.h"

namespace unisono {
namespace {

constexpr std::array<std::string_view, kDataTypeCount> kTypeNames{
    "int8",    "int16",   "int32",   "int64",     "uint8",       "uint16",
    "uint32",  "uint64",  "float16", "bfloat16",  "float8_e4m3", "float8_e5m2",
    "float32", "float64", "bool",    "complex64", "complex128"};
constexpr std::array<std::string_view, kOpKindCount> kOpNames{
    "sum",     "product", "min",     "max",         "average",    "premultiplied_sum",
    "bit_and", "bit_or",  "bit_xor", "logical_and", "logical_or", "logical_xor",
    "user"};
constexpr std::array<std::string_view, kOrderCount> kOrderNames{"any", "canonical", "exact"};
// nccl-tests' and numpy's spellings.
constexpr std::pair<std::string_view, DataType> kTypeAliases[]{
    {"half", DataType::kFloat16},      {"fp16", DataType::kFloat16},
    {"bf16", DataType::kBfloat16},     {"float", DataType::kFloat32},
    {"fp32", DataType::kFloat32},      {"double", DataType::kFloat64},
    {"fp64", DataType::kFloat64},      {"fp8_e4m3", DataType::kFloat8E4m3},
    {"f8e4m3", DataType::kFloat8E4m3}, {"fp8_e5m2", DataType::kFloat8E5m2},
    {"f8e5m2", DataType::kFloat8E5m2}, {"char", DataType::kInt8},
    {"int", DataType::kInt32},
};

template <typename Enum, std::size_t N>
bool find_name(const std::array<std::string_view, N>& names, std::string_view text, Enum* out) {
  const auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end()) return false;
  *out = static_cast<Enum>(found - names.begin());
  return true;
}

// Values that a caller cast from a number need not have a name.
template <typename Enum, std::size_t N>
std::string_view name_or_unknown(const std::array<std::string_view, N>& names, Enum value) {
  const auto index = static_cast<std::size_t>(value);
  return index < N ? names[index] : "unknown";
}

bool is_integer(DataType type) { return type <= DataType::kUint64; }
bool is_complex(DataType type) {
  return type == DataType::kComplex64 || type == DataType::kComplex128;
}

}  // namespace

std::string_view name_of(DataType type) { return name_or_unknown(kTypeNames, type); }
std::string_view name_of(OpKind kind) { return name_or_unknown(kOpNames, kind); }
std::string_view name_of(Order order) { return name_or_unknown(kOrderNames, order); }
std::string_view name_of(Collective collective) { return facts_of(collective).name; }

bool parse(std::string_view text, Order* order) { return find_name(kOrderNames, text, order); }

bool parse(std::string_view text, DataType* type) {
  if (find_name(kTypeNames, text, type)) return true;
  for (const auto& [alias, value] : kTypeAliases) {
    if (alias == text) {
      *type = value;
      return true;
    }
  }
  return false;
}

bool parse(std::string_view text, Collective* collective) {
  const auto squeeze = [](std::string_view from) {
    std::string to;
    std::copy_if(from.begin(), from.end(), std::back_inserter(to),
                 [](char c) { return c != '_' && c != '-'; });
    return to;
  };
  const std::string wanted = squeeze(text);
  for (const CollectiveFacts& facts : collective_rows::kAll) {
    if (squeeze(facts.name) != wanted) continue;
    *collective = facts.collective;
    return true;
  }
  return false;
}

bool is_meaningful(OpKind op, DataType type) {
  switch (op) {
    case OpKind::kSum:
    case OpKind::kProduct:
    case OpKind::kUser:
      return true;
    case OpKind::kMin:
    case OpKind::kMax:
    case OpKind::kLogicalAnd:
    case OpKind::kLogicalOr:
    case OpKind::kLogicalXor:
      return !is_complex(type);
    case OpKind::kAverage:
    case OpKind::kPremultipliedSum:
      return type != DataType::kBool;
    case OpKind::kBitAnd:
    case OpKind::kBitOr:
    case OpKind::kBitXor:
      return is_integer(type) || type == DataType::kBool;
  }
  return false;
}

}  // namespace unisono
