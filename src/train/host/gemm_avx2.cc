// The matrix product for x86-64 with AVX2 and FMA; see gemm_kernel.inc.
#define Eigen Eigen_avx2
#define UNISONO_GEMM_NAMESPACE gemm_avx2
#include "train/host/gemm_kernel.inc"
