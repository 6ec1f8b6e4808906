// Random numbers of tests: from one seed, which a failure prints and --gtest_random_seed replays.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>

namespace unisono::test {

/// The seed of this run; 1 unless --gtest_random_seed says otherwise.
inline std::uint64_t seed() {
  const int asked = GTEST_FLAG_GET(random_seed);
  return asked > 0 ? static_cast<std::uint64_t>(asked) : 1;
}

/// A generator of its own for each `stream`, so that one test does not shift another's numbers.
inline std::mt19937_64 random_stream(std::uint64_t stream) {
  return std::mt19937_64(seed() * 0x9e3779b97f4a7c15ull + stream);
}

/// 0 to bound - 1. The standard's distributions differ between libraries; this does not.
inline std::uint64_t below(std::mt19937_64& random, std::uint64_t bound) {
  return random() % bound;
}

/// Make one first in a test with random input: its failures then name the seed.
class SeedTrace {
 public:
  SeedTrace()
      : trace_(__FILE__, __LINE__, "replay with --gtest_random_seed=" + std::to_string(seed())) {}

 private:
  testing::ScopedTrace trace_;
};

}  // namespace unisono::test
