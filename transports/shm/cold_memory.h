// Whether memory that is about to be overwritten has left the caches. An ordinary store would fetch
// each of its lines from memory first; a non-temporal one does not.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <span>

#include "base/host_facts.h"

namespace unisono::shm {

/// Who writes less at a time does not ask: the owner is likely to read it while caches hold it.
inline constexpr std::size_t kColdBytesMin = std::size_t{256} << 10;

class ColdMemory {
 public:
  /// Whether lines of this place, of which a few are read, take longer to come than two that
  /// another rank hands over: a third-level cache may be as far as another core. What was cold when
  /// it was asked about last is not again: its owner has stored past the caches since. Nor is
  /// anything where it was not measured what a hand-over takes.
  bool has(std::span<const std::byte> place, const HostFacts& host);

 private:
  const std::byte* last_ = nullptr;  // what was found cold, if the last place was
};

}  // namespace unisono::shm
