// The kernels that the floor of a measurement is made of: the library's own that moves bytes, and
// one that does nothing. One thread; the context is current.
#pragma once

#include <cstddef>
#include <memory>

#include "base/result.h"
#include "cuda/driver/cuda_api.h"
#include "cuda/kernels/kernels.h"

namespace unisono::perf {

class FloorKernels {
 public:
  static Result<std::unique_ptr<FloorKernels>> load(std::shared_ptr<const cuda::CudaApi> api,
                                                    CUdevice device, CUcontext context);
  ~FloorKernels();
  FloorKernels(const FloorKernels&) = delete;

  /// Enqueues one launch.
  Status move(CUstream stream, void* to, const void* from, std::size_t bytes) const;
  Status launch_empty(CUstream stream) const;

 private:
  explicit FloorKernels(std::shared_ptr<const cuda::CudaApi> api) : api_(std::move(api)) {}
  Status load_empty();

  const std::shared_ptr<const cuda::CudaApi> api_;
  std::unique_ptr<cuda::Kernels> moving_;
  CUlibrary library_ = nullptr;
  CUfunction empty_ = nullptr;
};

}  // namespace unisono::perf
