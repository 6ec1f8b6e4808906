// Kernels: bitwise and logical operators, bool, and moving bytes. See kernel_list.h for their
// names.
#include "cuda/kernels/kernel_entry.h"

namespace unisono::cuda {

UNISONO_BITWISE_KERNELS(UNISONO_REDUCING_KERNEL)

extern "C" __global__ void __launch_bounds__(kBlockThreads, kBlocksPerMultiprocessor)
    unisono_move(const __grid_constant__ DeviceWork work) {
  if (called_off(work)) return;
  move_piece(work, work.pieces[blockIdx.y], this_thread_of_piece());
}

extern "C" __global__ void __launch_bounds__(kBlockThreads, kUnitBlocksFor<1>)
    unisono_copy(const __grid_constant__ DeviceWork work) {
  if (called_off(work)) return;
  copy_piece_by_units(work, work.pieces[blockIdx.y], this_thread_of_piece());
}

}  // namespace unisono::cuda
