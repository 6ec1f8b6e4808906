// The functions of cuBLAS that the trainer calls, declared by hand and found by dlopen at run time:
// neither its header nor its library is needed to build. Names, arguments and results are cuBLAS'
// own (its manual), without the prefix `cublas`; its matrices are stored by columns.
#pragma once

#include <cuda.h>

#include <memory>
#include <string>

namespace unisono::train {

/// cublasHandle_t.
using CublasHandle = struct cublasContext*;
/// cublasStatus_t, cublasOperation_t and cublasMath_t: enumerations of C, which travel as int.
using CublasStatus = int;
using CublasOperation = int;
using CublasMath = int;
inline constexpr CublasStatus kCublasSuccess = 0;
inline constexpr CublasOperation kCublasPlain = 0, kCublasTransposed = 1;
/// No lower precision than the operands': fp32 stays fp32.
inline constexpr CublasMath kCublasDefaultMath = 0;

/// One library. Immutable after loading; any thread.
struct CublasApi {
  CublasStatus (*Create)(CublasHandle* handle) = nullptr;
  CublasStatus (*Destroy)(CublasHandle handle) = nullptr;
  /// Takes the workspace away again: before SetWorkspace.
  CublasStatus (*SetStream)(CublasHandle handle, CUstream stream) = nullptr;
  CublasStatus (*SetMathMode)(CublasHandle handle, CublasMath mode) = nullptr;
  CublasStatus (*SetWorkspace)(CublasHandle handle, void* workspace, std::size_t bytes) = nullptr;
  CublasStatus (*Sgemm)(CublasHandle handle, CublasOperation left, CublasOperation right, int rows,
                        int columns, int inner, const float* alpha, const float* a, int a_stride,
                        const float* b, int b_stride, const float* beta, float* c,
                        int c_stride) = nullptr;
  CublasStatus (*SgemmStridedBatched)(CublasHandle handle, CublasOperation left,
                                      CublasOperation right, int rows, int columns, int inner,
                                      const float* alpha, const float* a, int a_stride,
                                      long long int a_step, const float* b, int b_stride,
                                      long long int b_step, const float* beta, float* c,
                                      int c_stride, long long int c_step, int count) = nullptr;
  const char* (*GetStatusString)(CublasStatus status) = nullptr;
};

/// `file` is the value of UNISONO_CUBLAS_LIBRARY: that file alone; empty: libcublas.so.13, .12 and
/// .11 in turn, but none that is newer than `cuda_major`, which the driver would refuse. Kept for
/// the life of the process. std::runtime_error names what was tried and why it will not do.
std::shared_ptr<const CublasApi> load_cublas(const std::string& file, int cuda_major);

}  // namespace unisono::train
