// What every .cu file makes its kernels with. The grid: x shares out a piece, y is the piece.
// Device code.
#pragma once

#include "cuda/kernels/abort_answer.h"
#include "cuda/kernels/device_work.h"
#include "cuda/kernels/kernel_list.h"
#include "cuda/kernels/kernel_shape.h"
#include "cuda/kernels/move_loop.h"
#include "cuda/kernels/unit_loop.h"
#include "cuda/kernels/work_loop.h"

namespace unisono::cuda {

__device__ __forceinline__ ThreadOfPiece this_thread_of_piece() {
  return {std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x,
          std::uint64_t{gridDim.x} * blockDim.x};
}

static __device__ AnswerLine abort_answers[kAnswerLines];
static __device__ BlockCounter block_counters[kBlockCounters];

/// Whether the call has failed. One thread of each block asks.
__device__ __forceinline__ bool called_off(const DeviceWork& work) {
  if (work.abort == nullptr) return false;
  return __syncthreads_or(threadIdx.x == 0 && is_called_off(work, abort_answers, block_counters)) !=
         0;
}

}  // namespace unisono::cuda

#define UNISONO_REDUCING_KERNEL(name, ...)                                             \
  extern "C" __global__ void __launch_bounds__(kBlockThreads, kBlocksFor<__VA_ARGS__>) \
      name(const __grid_constant__ DeviceWork work) {                                  \
    if (called_off(work)) return;                                                      \
    reduce_piece<__VA_ARGS__>(work, work.pieces[blockIdx.y], this_thread_of_piece());  \
  }

#define UNISONO_UNIT_KERNEL(name, inputs, ...)                                        \
  extern "C" __global__ void __launch_bounds__(kBlockThreads, kUnitBlocksFor<inputs>) \
      name(const __grid_constant__ DeviceWork work) {                                 \
    if (called_off(work)) return;                                                     \
    reduce_piece_by_units<inputs, __VA_ARGS__>(work, work.pieces[blockIdx.y],         \
                                               this_thread_of_piece());               \
  }
