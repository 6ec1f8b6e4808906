// The ranks of a host, each a process, measure together what decides how data best get from one to
// another: HostFacts. In a ring: rank r reads what rank r + 1 has written, while that reads its own
// neighbour's, and each copy is timed by who makes it. So what the ranks hinder each other with
// counts, but not that a rank had no processor: of several times the least counts.
//
//   size     16 KiB                                            256 KiB    1 MiB, through four slots
//   calls    5 x (write, meet, read, meet), past the caches,   3 x ...    3 x ...
//            by the kernel, of its own memory
//
// A rank waits for the others no longer than until its deadline; who gives up says so, and then all
// do. A size for which there is no time is left out, and its memory not reserved. Ranks that share
// cores do not measure (SharedSegment): the turns they take would be most of what they found.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "base/host_facts.h"
#include "transports/shm/segment.h"
#include "transports/shm/single_copy.h"

namespace unisono::shm {

/// More ranks do not measure: what they would wait for each other grows with them.
inline constexpr int kMeasuringRanksMax = 16;

/// What a rank copies at most.
inline constexpr std::size_t kProbeBytes = bytes_of_copy(kMeasuredCopySizes - 1);

/// What a rank tells the others meanwhile; all zero before, written by that rank alone.
struct ProbeBoard {
  CounterLine meetings;   ///< it has come to so many
  CounterLine has_ended;  ///< 1: it measures nothing more
  CounterLine next_size;  ///< the first rank's word: the ranks go on with that
  std::uint64_t source;   ///< where its private data lie
  HostFacts found;        ///< at the end
};

struct ProbePlaces {
  int self = 0;
  std::vector<ProbeBoard*> boards;  ///< by rank, at least two
  std::vector<std::byte*> windows;  ///< kWindowBytes each
  /// Of the rank's own window so many bytes from its beginning; false: there is no memory. Empty:
  /// all of it is there.
  std::function<bool(std::size_t bytes)> reserve;
  /// kProbeBytes of private memory, which the rank before this one may read until it has come back
  /// from probe_host(), too: whoever gives up waits for nobody.
  std::byte* source = nullptr;
  const SingleCopy* next = nullptr;  ///< of the next rank's memory; null: not allowed
};

/// What the ranks agreed on before the first of them gave up: of each time the median over them, of
/// an even number the greater of the two in the middle, none where one has none. That is the same
/// for all but for the last size, so one rank's word has to count.
HostFacts probe_host(const ProbePlaces& places, TimePoint deadline);

}  // namespace unisono::shm
