// Bytes as hexadecimal digits.
//
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace unisono {

/// Two lower-case digits for each byte, to `out`, which has room for them.
inline void write_hex(std::span<const std::byte> bytes, char* out) {
  constexpr char kDigits[] = "0123456789abcdef";
  for (const std::byte byte : bytes) {
    *out++ = kDigits[std::to_integer<unsigned>(byte) >> 4];
    *out++ = kDigits[std::to_integer<unsigned>(byte) & 15];
  }
}

inline std::string hex_of(std::span<const std::byte> bytes) {
  std::string digits(2 * bytes.size(), '\0');
  write_hex(bytes, digits.data());
  return digits;
}

}  // namespace unisono
