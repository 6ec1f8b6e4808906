// Where the buffers of a measurement lie in one arena: one slot (hot), or as many as it takes for
// the rotation to cover four times the last-level cache (cold). Header only and free of the
// library, because the harnesses of other libraries use it too. Plain values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>

namespace unisono::perf {

inline constexpr std::size_t kColdFactor = 4;

/// Read from sysfs: sysconf() multiplies by the cores on some virtual machines.
inline std::size_t last_level_cache_bytes() {
  std::size_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    char path[80];
    std::snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
    std::FILE* file = std::fopen(path, "re");
    if (file == nullptr) break;
    unsigned long kib = 0;
    if (std::fscanf(file, "%9luK", &kib) == 1) largest = std::max(largest, std::size_t{kib} << 10);
    std::fclose(file);
  }
  return largest > 0 ? largest : std::size_t{32} << 20;
}

/// Small buffers begin on cache lines, large ones on pages, as allocators do it.
inline std::size_t stride_of(std::size_t bytes) {
  const std::size_t unit = bytes >= 4096 ? 4096 : 64;
  return (std::max<std::size_t>(bytes, 1) + unit - 1) / unit * unit;
}

/// Input and output of every slot follow each other.
struct Slots {
  std::byte* base = nullptr;
  std::size_t in_stride = 0, out_stride = 0;
  int count = 1;

  std::byte* in(int slot) const { return base + (in_stride + out_stride) * index(slot); }
  std::byte* out(int slot) const { return in(slot) + in_stride; }
  std::size_t bytes() const { return (in_stride + out_stride) * static_cast<std::size_t>(count); }
  /// Iterations count up without end; slots come round.
  std::size_t index(int iteration) const {
    return count == 1 ? 0 : static_cast<std::size_t>(iteration % count);
  }
};

inline int slots_for(std::size_t slot_bytes, bool cold, std::size_t cache_bytes) {
  if (!cold) return 1;
  const std::size_t covering = (kColdFactor * cache_bytes + slot_bytes - 1) / slot_bytes;
  return static_cast<int>(std::max<std::size_t>(covering, 2));
}

inline Slots make_slots(std::byte* base, std::size_t in_bytes, std::size_t out_bytes, bool cold,
                        std::size_t cache_bytes) {
  Slots slots{base, stride_of(in_bytes), stride_of(out_bytes), 1};
  slots.count = slots_for(slots.in_stride + slots.out_stride, cold, cache_bytes);
  return slots;
}

/// An arena of this size holds the slots of every point up to these bytes of input and output.
inline std::size_t arena_bytes(std::size_t in_bytes_max, std::size_t out_bytes_max, bool cold,
                               std::size_t cache_bytes) {
  const std::size_t largest = stride_of(in_bytes_max) + stride_of(out_bytes_max);
  return cold ? std::max(2 * largest, kColdFactor * cache_bytes + largest) : largest;
}

/// Copies a repeating block over `bytes`: fast enough to rewrite inputs between iterations, since
/// the block stays in the first-level cache.
inline void fill_repeating(std::byte* target, std::size_t bytes, const std::byte* block,
                           std::size_t block_bytes) {
  for (std::size_t at = 0; at < bytes; at += block_bytes) {
    std::memcpy(target + at, block, std::min(block_bytes, bytes - at));
  }
}

}  // namespace unisono::perf
