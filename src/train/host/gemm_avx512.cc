// The matrix product for x86-64 with AVX-512; see gemm_kernel.inc.
#define Eigen Eigen_avx512
#define UNISONO_GEMM_NAMESPACE gemm_avx512
#include "train/host/gemm_kernel.inc"
