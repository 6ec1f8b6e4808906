// What the writer and the reader of checkpoint files share.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace unisono::train {

inline constexpr std::string_view kCheckpointMagic("UNISONO\x1a", 8);
inline constexpr std::uint32_t kCheckpointVersion = 3;
/// Magic, version and checksum: what the checksum does not cover.
inline constexpr std::size_t kUncheckedBytes = 16;
inline constexpr std::size_t kHeaderBytes = 24;
/// Read and written at a time.
inline constexpr std::size_t kBlockBytes = std::size_t{1} << 20;
/// Of Checkpoint::order.
inline constexpr std::size_t kOrderBytesMax = 64;
/// Of a tensor: more than any model has; a limit so that a damaged file reads as damaged.
inline constexpr std::size_t kDimensionsMax = 16;

/// A number in memory as it is in the file, and back.
template <typename T>
T little_endian(T value) {
  static_assert(std::endian::native == std::endian::little || sizeof(T) == 4 || sizeof(T) == 8);
  if constexpr (std::endian::native == std::endian::little) return value;
  if constexpr (sizeof(T) == 4) {
    return std::bit_cast<T>(__builtin_bswap32(std::bit_cast<std::uint32_t>(value)));
  } else {
    return std::bit_cast<T>(__builtin_bswap64(std::bit_cast<std::uint64_t>(value)));
  }
}

}  // namespace unisono::train
