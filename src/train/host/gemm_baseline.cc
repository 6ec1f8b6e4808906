// The matrix product for every CPU of this architecture; see gemm_kernel.inc.
#define Eigen Eigen_baseline
#define UNISONO_GEMM_NAMESPACE gemm_baseline
#include "train/host/gemm_kernel.inc"
