// Whole numbers as bytes on a wire, least significant first, whatever this machine does. Values
// only; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace unisono {

template <typename T>
void append_little_endian(T value, std::string* bytes) {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    *bytes += static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i));
  }
}

/// Of at most eight bytes; 0 of none.
inline std::uint64_t read_little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    value |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return value;
}

}  // namespace unisono
