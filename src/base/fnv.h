// FNV-1a: a short number for a text, the same on every machine. Not against anybody who chooses the
// text. Any thread.
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

/// For texts that are taken to be equal where their numbers are.
constexpr std::uint64_t fnv1a_64(std::string_view text) {
  std::uint64_t hash = 14695981039346656037u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

}  // namespace unisono
