// Kernels: element by element. See list.h for their names.
#include "train/cuda/kernels/entry.h"

namespace unisono::train::kernels {

UNISONO_TRAIN_ELEMENT_KERNELS(UNISONO_TRAIN_KERNEL)

}  // namespace unisono::train::kernels
