#include "tools/perf/floor_kernels.h"

#include "cuda/kernels/embedded_kernels.h"

UNISONO_EMBED_KERNELS(unisono_perf_kernels, UNISONO_PERF_KERNELS)

namespace unisono::perf {

Result<std::unique_ptr<FloorKernels>> FloorKernels::load(std::shared_ptr<const cuda::CudaApi> api,
                                                         CUdevice device, CUcontext context) {
  std::unique_ptr<FloorKernels> kernels(new FloorKernels(api));
  UNISONO_ASSIGN(kernels->moving_, cuda::Kernels::load(std::move(api), device, context));
  UNISONO_TRY(kernels->load_empty());
  return kernels;
}

Status FloorKernels::load_empty() {
  UNISONO_TRY(api_->check(api_->LibraryLoadData(&library_, unisono_perf_kernels, nullptr, nullptr,
                                                0, nullptr, nullptr, 0),
                          "loading the empty kernel"));
  CUkernel kernel = nullptr;
  UNISONO_TRY(api_->check(api_->LibraryGetKernel(&kernel, library_, "unisono_perf_empty"),
                          "finding the empty kernel"));
  return api_->check(api_->KernelGetFunction(&empty_, kernel), "loading the empty kernel");
}

FloorKernels::~FloorKernels() {
  if (library_ != nullptr) api_->LibraryUnload(library_);
}

Status FloorKernels::move(CUstream stream, void* to, const void* from, std::size_t bytes) const {
  cuda::DeviceWork work;
  work.piece_count = 1;
  work.pieces[0] = {.count = bytes, .inputs = 1, .first_output = 1, .outputs = 1};
  work.pointers[0] = const_cast<void*>(from);
  work.pointers[1] = to;
  return moving_->launch(stream, work, {}, cuda::Runs::kOnce);
}

Status FloorKernels::launch_empty(CUstream stream) const {
  unsigned unused = 0;
  void* parameters[] = {&unused};
  return api_->check(api_->LaunchKernel(empty_, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr),
                     "launching the empty kernel");
}

}  // namespace unisono::perf
