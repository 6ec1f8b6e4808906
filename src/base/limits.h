// Bounds of a job that more than one folder checks against.
#pragma once

#include <cstddef>
#include <cstdint>

namespace unisono {

inline constexpr int kWorldSizeMax = 65536;
/// Data connections between two ranks.
inline constexpr int kStreamsMax = 8;
/// Bytes of one buffer of a call, of a message or of what is allocated: all that a process can have
/// mapped. Every rank's share of as many still has a number, so nothing below checks again.
inline constexpr std::size_t kBufferBytesMax = std::size_t{1} << 47;
static_assert(kBufferBytesMax <= SIZE_MAX / kWorldSizeMax);

}  // namespace unisono
