// Random numbers of a simulation: the same ones from the same seed with any compiler.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace unisono::sim {

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15ull;
    std::uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ull;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebull;
    return mixed ^ (mixed >> 31);
  }
  /// 0 to bound - 1; 0 for no bound.
  std::uint64_t below(std::uint64_t bound) { return bound == 0 ? 0 : next() % bound; }
  /// Both ends included.
  std::uint64_t between(std::uint64_t least, std::uint64_t most) {
    return least + below(most - least + 1);
  }
  /// 0: never.
  bool one_in(std::uint64_t times) { return times > 0 && below(times) == 0; }
  Duration up_to(Duration most) {
    return Duration(
        static_cast<Duration::rep>(below(static_cast<std::uint64_t>(most.count()) + 1)));
  }
  /// Small numbers are as likely as large ones: evenly among the numbers of digits.
  Duration of_any_scale_up_to(Duration most) {
    Duration bound = most;
    for (std::uint64_t times = below(10); times > 0; --times) bound /= 4;
    return up_to(bound);
  }

 private:
  std::uint64_t state_;
};

}  // namespace unisono::sim
