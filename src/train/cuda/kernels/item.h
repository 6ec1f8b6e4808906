// What the kernels of this folder have in common.
//
// A kernel is a struct of plain parameters: `items`, the number of things it computes, and
// `operator()(index)`, which computes one of them, for `index` below `items`. Items do not depend
// on each other, so any number of threads may take any of them in any order; neighbouring threads
// take neighbouring ones. There are no atomics and no shared memory, and each sum has its order, so
// the same call gives the same bits.
//
// `buffers(visit)` names what the kernel touches: visit(pointer, elements), read only where the
// pointer is to const. The host's twins translate the addresses with it.
//
// Host and device code. No state.
#pragma once

#include <cstdint>

#include "cuda/kernels/host_device.h"

namespace unisono::train::kernels {

struct Split {
  std::uint64_t quotient, remainder;
};

/// By 32 bits where that will do: a GPU divides 64 bits in a subroutine.
UNISONO_HOST_DEVICE Split split(std::uint64_t index, std::uint64_t divisor) {
  if (((index | divisor) >> 32) == 0) {
    const auto low = static_cast<std::uint32_t>(index), by = static_cast<std::uint32_t>(divisor);
    return {low / by, low % by};
  }
  return {index / divisor, index % divisor};
}

UNISONO_HOST_DEVICE std::uint64_t least(std::uint64_t a, std::uint64_t b) { return a < b ? a : b; }

}  // namespace unisono::train::kernels
