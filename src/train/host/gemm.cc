// Chooses the kernel for this CPU, once.
#include "train/host/gemm.h"

#include <array>

namespace unisono::train {
namespace gemm_baseline {
void multiply(const Product& product);
}
#if defined(__x86_64__)
namespace gemm_avx2 {
void multiply(const Product& product);
}
namespace gemm_avx512 {
void multiply(const Product& product);
}
#endif

std::span<const GemmKernel> gemm_kernels() {
#if defined(__x86_64__)
  static const std::array<GemmKernel, 3> kernels = [] {
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                      __builtin_cpu_supports("bmi2");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd");
    return std::array<GemmKernel, 3>{GemmKernel{"baseline", true, gemm_baseline::multiply},
                                     GemmKernel{"avx2", avx2, gemm_avx2::multiply},
                                     GemmKernel{"avx512", avx512, gemm_avx512::multiply}};
  }();
#else
  static const std::array<GemmKernel, 1> kernels{
      GemmKernel{"baseline", true, gemm_baseline::multiply}};
#endif
  return kernels;
}

void multiply(const Product& product) {
  static const auto chosen = [] {
    const GemmKernel* best = nullptr;
    for (const GemmKernel& kernel : gemm_kernels()) {
      if (kernel.supported) best = &kernel;
    }
    return best->multiply;
  }();
  chosen(product);
}

}  // namespace unisono::train
