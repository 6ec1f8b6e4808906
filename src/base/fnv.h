// FNV-1a of 32 bits: a short number for a text, the same on every machine. Not against anybody who
// chooses the text. Any thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace unisono {

inline constexpr std::uint32_t kFnvPrime = 16777619u;

constexpr std::uint32_t fnv1a(std::string_view text) {
  std::uint32_t hash = 2166136261u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * kFnvPrime;
  return hash;
}

}  // namespace unisono
