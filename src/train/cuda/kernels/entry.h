// What the .cu files make their kernels with: threads take items in strides of the whole grid.
// Device code.
#pragma once

#include "train/cuda/kernels/launch_shape.h"
#include "train/cuda/kernels/list.h"

#define UNISONO_TRAIN_KERNEL(name, ...)                                        \
  extern "C" __global__ void __launch_bounds__(kBlockThreads)                  \
      name(const __grid_constant__ __VA_ARGS__ kernel) {                       \
    const std::uint64_t threads = std::uint64_t{gridDim.x} * blockDim.x;       \
    std::uint64_t item = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; \
    for (; item < kernel.items; item += threads) kernel(item);                 \
  }
