#include <algorithm>

#include "train/cuda/cuda_backend.h"
#include "train/cuda/gpu.h"

namespace unisono::train {
namespace {

class DriverMemory final : public PageLockedMemory {
 public:
  explicit DriverMemory(int device) : gpu_(device) {}

  void* take(std::size_t bytes) override {
    const Gpu::Scope scope(gpu_);
    void* block = nullptr;
    const CUresult result =
        gpu_.api().MemHostAlloc(&block, std::max(bytes, std::size_t{1}), CU_MEMHOSTALLOC_PORTABLE);
    if (result != CUDA_SUCCESS) {
      gpu_.fail(result, "page-locking " + std::to_string(bytes) +
                            " bytes of host memory (use smaller batches, or pageable memory)");
    }
    return block;
  }

  void give(void* block) noexcept override {
    const Gpu::QuietScope scope(gpu_);
    if (scope) gpu_.api().MemFreeHost(block);
  }

 private:
  const Gpu gpu_;
};

}  // namespace

std::shared_ptr<PageLockedMemory> make_page_locked_memory(int device) {
  return std::make_shared<DriverMemory>(device);
}

}  // namespace unisono::train
