// Bounds of a job that more than one folder checks against.
#pragma once

namespace unisono {

inline constexpr int kWorldSizeMax = 65536;
/// Data connections between two ranks.
inline constexpr int kStreamsMax = 8;

}  // namespace unisono
