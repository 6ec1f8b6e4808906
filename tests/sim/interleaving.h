// Where ranks are interrupted inside of native code: at any of its atomic accesses, of which this
// hears through atomic_accesses.cc. What a rank has stored there, and not by a sequentially
// consistent access, the others see later, as on processors with store buffers. Under a sanitizer
// nothing is heard, and ranks are interrupted between two looks alone.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>

#include "base/sanitizers.h"
#include "tests/sim/fiber.h"
#include "tests/sim/random.h"

namespace unisono::sim {

/// Whether accesses are heard of at all: not in a sanitizer's program, which knows one stack alone.
inline constexpr bool kHearsAccesses = !UNISONO_ADDRESS_SANITIZER && !UNISONO_THREAD_SANITIZER;

/// Of one rank.
class Interleaving {
 public:
  /// The rank is interrupted at one of so many accesses, and one of so many stores is seen later;
  /// 0: never.
  Interleaving(std::uint64_t seed, unsigned interrupted_one_in, unsigned buffered_one_in)
      : random_(seed), interrupted_one_in_(interrupted_one_in), buffered_one_in_(buffered_one_in) {}

  /// Runs what the rank does, or goes on with it, until it ends or is interrupted.
  void run(std::function<void()> beat);
  bool is_interrupted() const { return fiber_.is_left(); }

  /// Of a rank, if one runs: what it does without being interrupted, and that is seen at once,
  /// behind all that it has stored before.
  static void in_one_go(const std::function<void()>& what);

  /// Of the rank that runs; null where none does.
  static Interleaving* current();
  /// Before each access.
  void on_access();
  /// Stores now or later. `bytes`: 8 at most.
  void store(volatile void* to, const void* value, std::size_t bytes);
  /// Fills in what this rank has stored there last, if nobody else sees that yet.
  bool find_stored(const volatile void* from, void* value, std::size_t bytes) const;
  /// Everyone sees all that it has stored.
  void flush();

 private:
  struct Store {
    volatile void* to;
    std::uint64_t value;
    std::size_t bytes;
  };
  void see_first();

  Random random_;
  const unsigned interrupted_one_in_, buffered_one_in_;
  Fiber fiber_;
  std::deque<Store> stores_;
};

}  // namespace unisono::sim
