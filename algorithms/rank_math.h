// Arithmetic on ranks that several algorithms share. Pure functions; safe from any thread.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "unisono/types.h"

namespace unisono::algorithms {

/// value modulo ranks, for values down to -ranks * many.
constexpr int wrap(int value, int ranks) {
  const int rest = value % ranks;
  return rest < 0 ? rest + ranks : rest;
}

constexpr bool is_power_of_two(int value) {
  return std::has_single_bit(static_cast<unsigned>(value));
}

/// The largest power of two up to `value`, which is at least 1.
constexpr int power_of_two_floor(int value) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(value)));
}

constexpr int floor_log2(int value) { return std::bit_width(static_cast<unsigned>(value)) - 1; }

/// Doublings that take 1 to at least `value`.
constexpr int ceil_log2(int value) { return value <= 1 ? 0 : floor_log2(value - 1) + 1; }

/// The lowest `bits` bits of `value` in opposite order.
constexpr int reverse_bits(int value, int bits) {
  int reversed = 0;
  for (int i = 0; i < bits; ++i) reversed |= ((value >> i) & 1) << (bits - 1 - i);
  return reversed;
}

/// A run of blocks.
struct Run {
  int first = 0;
  int count = 0;
};

/// `count` blocks from block `first` on around a ring of `ranks` blocks, as runs that do not wrap;
/// the second one is empty when the first does not reach the end.
constexpr std::array<Run, 2> unwrapped(int first, int count, int ranks) {
  const int start = wrap(first, ranks);
  const int head = start + count <= ranks ? count : ranks - start;
  return {Run{start, head}, Run{0, count - head}};
}

}  // namespace unisono::algorithms
