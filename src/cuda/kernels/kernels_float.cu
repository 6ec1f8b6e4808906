// Kernels: fp32, fp64 and products of complex numbers. See kernel_list.h for their names.
#include "cuda/kernels/kernel_entry.h"

namespace unisono::cuda {

UNISONO_FLOAT_KERNELS(UNISONO_REDUCING_KERNEL)
UNISONO_UNIT_FLOAT_KERNELS(UNISONO_UNIT_KERNEL)

}  // namespace unisono::cuda
