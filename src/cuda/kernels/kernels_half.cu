// Kernels: fp16 and bf16. See kernel_list.h for their names.
#include "cuda/kernels/kernel_entry.h"

namespace unisono::cuda {

UNISONO_HALF_KERNELS(UNISONO_REDUCING_KERNEL)
UNISONO_UNIT_HALF_KERNELS(UNISONO_UNIT_KERNEL)

}  // namespace unisono::cuda
