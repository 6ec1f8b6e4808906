// Kernels: integers of every width. See kernel_list.h for their names.
#include "cuda/kernels/kernel_entry.h"

namespace unisono::cuda {

UNISONO_INTEGER_KERNELS(UNISONO_REDUCING_KERNEL)

}  // namespace unisono::cuda
