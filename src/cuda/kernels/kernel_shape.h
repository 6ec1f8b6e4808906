// Threads of a launch, for the kernels and for those who launch them. Three blocks of 256 threads
// on each multiprocessor leave 80 registers for a thread and have the bytes under way that the
// memory needs (README.md).
#pragma once

namespace unisono::cuda {

inline constexpr unsigned kBlockThreads = 256;
inline constexpr unsigned kBlocksPerMultiprocessor = 3;

/// Scans over 16 elements of 16 bytes take more registers.
template <class Arithmetic>
inline constexpr unsigned kBlocksFor = sizeof(typename Arithmetic::Stored) == 16
                                           ? 2
                                           : kBlocksPerMultiprocessor;

/// Of kernels by units, whose threads have one each: as many as their inputs leave registers for.
template <int kInputs>
inline constexpr unsigned kUnitBlocksFor = kInputs == 8   ? 4
                                           : kInputs == 4 ? 5
                                                          : 6;

}  // namespace unisono::cuda
