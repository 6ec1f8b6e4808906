// Kernels: fp8 in its two forms. See kernel_list.h for their names.
#include "cuda/kernels/kernel_entry.h"

namespace unisono::cuda {

UNISONO_FLOAT8_KERNELS(UNISONO_REDUCING_KERNEL)

}  // namespace unisono::cuda
