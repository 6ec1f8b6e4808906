// Whether memory that is about to be overwritten has left the caches. An ordinary store would fetch
// each of its lines from memory first; a non-temporal one does not.
//
// Thread rule: pure, usable from any thread.
#pragma once

#include <cstddef>
#include <span>

#include "base/host_facts.h"

namespace unisono::shm {

/// Who writes less at a time does not ask: the owner is likely to read it while caches hold it.
inline constexpr std::size_t kColdBytesMin = std::size_t{256} << 10;

/// True when lines of it take longer to come than two that another rank hands over: a third-level
/// cache is as far as another core. A few are read. False where it was not measured how long a
/// hand-over takes.
bool is_cold(std::span<const std::byte> memory, const HostFacts& host);

}  // namespace unisono::shm
