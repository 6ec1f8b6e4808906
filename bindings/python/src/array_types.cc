#include "bindings/python/src/array_types.h"

#include <bit>

namespace unisono::python {
namespace {

ElementType known(DataType type) { return {type, std::string(name_of(type))}; }

std::optional<DataType> number(char code, std::size_t bytes) {
  switch (code) {
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
    case 'n':
      return detail::integer_type(bytes, true);
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
    case 'N':
    case 'c':
      return detail::integer_type(bytes, false);
    case '?':
      return DataType::kBool;
    case 'e':
      return DataType::kFloat16;
    case 'f':
      return DataType::kFloat32;
    case 'd':
      return DataType::kFloat64;
    default:
      return std::nullopt;
  }
}

std::optional<DataType> complex_number(std::string_view code) {
  if (code == "Zf") return DataType::kComplex64;
  if (code == "Zd") return DataType::kComplex128;
  return std::nullopt;
}

// Z before a float makes it complex; alone it is a pointer, as ctypes has them.
bool is_pointer(char code, char next) {
  if (code == 'Z') return next == '\0' || std::string_view("fdg").find(next) == std::string::npos;
  return std::string_view("OP&zX").find(code) != std::string_view::npos;
}

// Names of fields stand between colons.
bool has_pointer(std::string_view format) {
  bool in_name = false;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] == ':') in_name = !in_name;
    const char next = i + 1 < format.size() ? format[i + 1] : '\0';
    if (!in_name && is_pointer(format[i], next)) return true;
  }
  return false;
}

}  // namespace

ElementType type_of_format(const char* format, std::size_t item_bytes) {
  if (format == nullptr) return known(DataType::kUint8);
  std::string_view code = format;
  constexpr char kForeign = std::endian::native == std::endian::little ? '>' : '<';
  const bool is_foreign = !code.empty() && (code[0] == kForeign || code[0] == '!');
  if (!code.empty() && std::string_view("@=<>!").find(code[0]) != std::string_view::npos) {
    code.remove_prefix(1);
  }
  if (!is_foreign || item_bytes == 1) {
    const auto type = code.size() == 1 ? number(code[0], item_bytes) : complex_number(code);
    if (type && size_of(*type) == item_bytes) return known(*type);
  }
  return {{}, std::string("format '") + format + "'", has_pointer(code)};
}

ElementType type_of_name(std::string_view dtype) {
  if (dtype == "bfloat16") return known(DataType::kBfloat16);
  if (dtype == "float8_e4m3fn") return known(DataType::kFloat8E4m3);
  if (dtype == "float8_e5m2") return known(DataType::kFloat8E5m2);
  return {{}, std::string(dtype)};
}

ElementType type_of_dlpack(std::uint8_t code, std::uint8_t bits) {
  enum {
    kInt,
    kUint,
    kFloat,
    kHandle,
    kBfloat,
    kComplex,
    kBool,
    kFloat8E4m3fn = 10,
    kFloat8E5m2 = 12
  };
  const std::string name =
      "DLPack type " + std::to_string(code) + " of " + std::to_string(bits) + " bits";
  std::optional<DataType> type;
  switch (code) {
    case kInt:
    case kUint:
      if (bits % 8 == 0 && bits <= 64) type = detail::integer_type(bits / 8u, code == kInt);
      break;
    case kFloat:
      if (bits == 16) type = DataType::kFloat16;
      if (bits == 32) type = DataType::kFloat32;
      if (bits == 64) type = DataType::kFloat64;
      break;
    case kBfloat:
      type = DataType::kBfloat16;
      break;
    case kComplex:
      if (bits == 64) type = DataType::kComplex64;
      if (bits == 128) type = DataType::kComplex128;
      break;
    case kBool:
      type = DataType::kBool;
      break;
    case kFloat8E4m3fn:
      type = DataType::kFloat8E4m3;
      break;
    case kFloat8E5m2:
      type = DataType::kFloat8E5m2;
      break;
    default:
      break;
  }
  if (type && size_of(*type) * 8 == bits) return known(*type);
  return {{}, name, code == kHandle};
}

}  // namespace unisono::python
