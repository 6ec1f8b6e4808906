// Random numbers that are the same on every machine: initial weights and dropout.
// What is constexpr the kernels of a GPU call too.
#pragma once

#include <cstdint>

namespace unisono::train {

/// Bijective mixing of 64 bits (Steele, Lea, Flood 2014: the finaliser of SplitMix64).
constexpr std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

/// In [0, 1), from the upper bits: every value is a float exactly.
constexpr float unit_float(std::uint64_t bits) {
  return static_cast<float>(bits >> 40) * 0x1.0p-24F;
}

/// SplitMix64: a stream by its seed.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(mixed(seed)) {}

  std::uint64_t next() { return mixed(state_ += 0x9e3779b97f4a7c15ULL); }
  /// In [-range, range).
  float symmetric(float range) { return (2 * unit_float(next()) - 1) * range; }
  /// Mean 0, standard deviation 1: twelve uniform numbers (sums are exact, so no rounding of a
  /// mathematical library shows in the weights).
  float normal() {
    float sum = -6;
    for (int i = 0; i < 12; ++i) sum += unit_float(next());
    return sum;
  }

 private:
  std::uint64_t state_;
};

}  // namespace unisono::train
