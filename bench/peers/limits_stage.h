// What bare exchanges of two processes share: buffers as the libraries' programs have them, timed
// in the same harness, hot and cold.
#pragma once

#include <emmintrin.h>

#include "bench/peers/harness.h"
#include "bench/peers/limits.h"

namespace limits {

using bench::Lockstep;
using bench::Slots;

inline constexpr std::size_t kLargest = std::size_t{64} << 20;

/// The slots of one rank, as Measurement wants them.
class RotatingFloats {
 public:
  RotatingFloats(const Slots& slots, int rank, std::size_t bytes)
      : slots_(slots), bytes_(bytes), block_(bench::kPeriod * bench::kRepeats) {
    for (std::size_t i = 0; i < block_.size(); ++i) block_[i] = bench::value(rank, i);
  }
  void select(int k) { slot_ = k; }
  void rewrite() {
    unisono::perf::fill_repeating(slots_.in(slot_), bytes_,
                                  reinterpret_cast<const std::byte*>(block_.data()),
                                  block_.size() * sizeof(float));
  }
  int slots() const { return slots_.count; }
  void sweep() { std::memset(slots_.base, 0, slots_.bytes()); }

  /// After an exchange of two ranks: elements of the output that are not the sum, or, where
  /// `source` is a rank, not its input.
  std::size_t count_wrong(int source = -1) const {
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < bytes_ / sizeof(float); ++i) {
      wrong += out()[i] != (source < 0 ? bench::value_sum(2, i) : bench::value(source, i));
    }
    return wrong;
  }

 protected:
  float* in() const { return reinterpret_cast<float*>(slots_.in(slot_)); }
  float* out() const { return reinterpret_cast<float*>(slots_.out(slot_)); }

  Slots slots_;
  std::size_t bytes_;
  int slot_ = 0;

 private:
  std::vector<float> block_;
};

inline void add(float* out, const float* left, const float* right, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = left[i] + right[i];
}

inline void copy_streaming(float* to, const float* from, std::size_t count) {
  for (std::size_t i = 0; i < count; i += 4) {
    _mm_stream_ps(to + i, _mm_loadu_ps(from + i));
  }
  _mm_sfence();
}

/// Until the other has counted that far; counts go round.
inline void await(const Line& line, std::uint32_t count) {
  while (static_cast<std::int32_t>(line.word.load(std::memory_order_acquire) - count) < 0) {
    _mm_pause();
  }
}

/// What two forked ranks share.
struct Stage {
  std::size_t cache = unisono::perf::last_level_cache_bytes();
  std::size_t arena = unisono::perf::arena_bytes(kLargest, kLargest, true, cache);
  void* page = bench::share_with_children(2);
  std::byte* arenas[2] = {reinterpret_cast<std::byte*>(map(arena, MAP_SHARED)),
                          reinterpret_cast<std::byte*>(map(arena, MAP_SHARED))};
  Line* lines = reinterpret_cast<Line*>(map(4096, MAP_SHARED));

  Slots slots(int rank, std::size_t bytes, bool cold) const {
    return unisono::perf::make_slots(arenas[rank], bytes, bytes, cold, cache);
  }
};

/// Runs make(rank, cold) -> work on both ranks, for both modes, and prints the medians.
template <typename Make>
void measure_stage(Stage& stage, const std::string& test, const std::string& variant,
                   std::size_t bytes, Make&& make) {
  const auto body = [&](int rank) {
    Lockstep sync(stage.page, rank, 2);
    for (const bool cold : {false, true}) {
      auto work = make(rank, cold);
      stage.lines[rank].word.store(0);
      sync.barrier();
      const bench::Timing timing =
          unisono::perf::measure(sync, {.budget_us = 100e3, .iterations_min = 7}, work);
      if (const std::size_t wrong = work.count_wrong(); wrong > 0) {
        std::fprintf(stderr, "WRONG %s %s: %zu elements of rank %d\n", test.c_str(),
                     variant.c_str(), wrong, rank);
      }
      if (rank == 0) {
        row(test, variant + (cold ? ", cold" : ", hot"), bytes, timing.median_us, "us");
      }
    }
  };
  run_pair(
      0, 1, [&] { body(0); }, [&] { body(1); });
}

}  // namespace limits
