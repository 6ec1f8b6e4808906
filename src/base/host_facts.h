// What the ranks of a host have measured together when they met: how long it takes them to see what
// another one wrote, and to copy, each in its own process and all at once. Plain words, so that
// they may lie in shared memory and in a file (base/trial_facts.h).
//
// Thread rule: values.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace unisono {

/// What a MiB took by each way, in ns; 0: not tried. The ways' first is the one that is taken where
/// nothing is known.
template <std::size_t kWays>
using WayTimes = std::array<std::uint32_t, kWays>;

template <std::size_t kWays>
constexpr bool has_times(const WayTimes<kWays>& times) {
  return std::any_of(times.begin(), times.end(), [](std::uint32_t time) { return time != 0; });
}

/// What is waited for, in ns: until every rank has seen a line of every other one; a system call
/// that copies one line.
enum Wait : std::size_t { kLineWait, kKernelWait };
inline constexpr std::array<std::string_view, 2> kWaitNames{"exchange", "kernel"};

/// Copies, in ns for a MiB, of data that their owner has just written: into shared memory and out
/// of another's, through the caches and past them; by the kernel from another's private memory;
/// from one's own.
enum Copy : std::size_t {
  kWriteCopy,
  kReadCopy,
  kStreamedWriteCopy,
  kStreamedReadCopy,
  kKernelCopy,  ///< 0 as well where not all ranks may
  kLocalCopy,
};
inline constexpr std::array<std::string_view, 6> kCopyNames{
    "write", "read", "streamed_write", "streamed_read", "kernel", "local"};

/// Sizes of the data: 16 KiB, 256 KiB, 1 MiB.
inline constexpr std::size_t kMeasuredCopyMin = std::size_t{16} << 10;
inline constexpr std::size_t kMeasuredCopySizes = 3;
constexpr std::size_t bytes_of_copy(std::size_t size) {
  constexpr std::array<std::size_t, kMeasuredCopySizes> kBytes{
      kMeasuredCopyMin, std::size_t{256} << 10, std::size_t{1} << 20};
  return kBytes[size];
}

/// Of sizes for which there was no time nothing is known.
struct HostFacts {
  WayTimes<kWaitNames.size()> waits;
  std::array<WayTimes<kCopyNames.size()>, kMeasuredCopySizes> copies;

  /// All of the first size, but that single copies may have been refused.
  bool are_known() const {
    for (std::size_t copy = 0; copy < kCopyNames.size(); ++copy) {
      if (copy != kKernelCopy && copies[0][copy] == 0) return false;
    }
    return waits[kLineWait] != 0;
  }
  bool operator==(const HostFacts&) const = default;
};

}  // namespace unisono
