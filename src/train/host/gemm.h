// Single-precision matrix products on one thread, with the instruction set chosen at run time.
//
// The kernel source (gemm_kernel.inc) is compiled once per instruction set; which one runs is
// decided on the first call. The bits of a result depend on the values, the extents and the kernel,
// never on where the matrices lie.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "train/model/product.h"

namespace unisono::train {

void multiply(const Product& product);

/// One build of the kernel.
struct GemmKernel {
  std::string_view name;  ///< "baseline", "avx2", "avx512"
  bool supported;         ///< by this CPU
  void (*multiply)(const Product&);
};

/// All that this program holds, the widest last; multiply() uses the last supported one.
std::span<const GemmKernel> gemm_kernels();

}  // namespace unisono::train
