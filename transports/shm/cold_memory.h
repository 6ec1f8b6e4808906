// Whether memory that is about to be overwritten has left the caches. An ordinary store would fetch
// each of its lines from memory first; a non-temporal one does not.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/clock.h"

namespace unisono::shm {

/// Who writes less at a time does not ask: the owner is likely to read it while caches hold it.
inline constexpr std::size_t kColdBytesMin = std::size_t{256} << 10;

/// What can be done to a line to learn where it is.
struct LineProbe {
  /// How long it took to come. The clock waits for reads before it; where it does not, no memory is
  /// found cold.
  Duration (*time_of_reading)(const std::byte& line);
  void (*flush)(const std::byte& line);  ///< out of all caches, where the processor can
};
extern const LineProbe kLineProbe;

class ColdMemory {
 public:
  explicit ColdMemory(const LineProbe& probe = kLineProbe) : probe_(probe) {}

  /// Whether lines of this place, of which a few are read, come as late as a line of this rank's
  /// own that was flushed to memory: no other rank is asked, since what it takes to hand lines over
  /// says nothing of memory. What was cold when it was asked about last is not again: its owner has
  /// stored past the caches since. Nor is anything where no line can be flushed.
  bool has(std::span<const std::byte> place);

 private:
  Duration least_of_memory() const;
  bool comes_late(std::span<const std::byte> memory) const;

  LineProbe probe_;
  const std::byte* last_ = nullptr;  // what was found cold, if the last place was
  std::uint32_t asked_ = 0;
  Duration least_{};  // that a line takes which comes from memory; 0: not known
};

}  // namespace unisono::shm
