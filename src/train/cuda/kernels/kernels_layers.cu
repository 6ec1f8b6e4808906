// Kernels: sums, images, rows and tokens. See list.h for their names.
#include "train/cuda/kernels/entry.h"

namespace unisono::train::kernels {

UNISONO_TRAIN_LAYER_KERNELS(UNISONO_TRAIN_KERNEL)

}  // namespace unisono::train::kernels
