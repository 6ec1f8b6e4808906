// Threads of a launch, for the kernels and for those who launch them: blocks of 256, as many as a
// multiprocessor holds (2048 threads).
#pragma once

namespace unisono::train::kernels {

inline constexpr unsigned kBlockThreads = 256;
inline constexpr unsigned kBlocksPerMultiprocessor = 8;

}  // namespace unisono::train::kernels
