#include "train/cuda/block_cache.h"

#include <string>

#include "unisono/train/tensor.h"

namespace unisono::train {
namespace {

constexpr std::size_t kUnit = 256;

class OutOfGpuMemory final : public OutOfDeviceMemory {
 public:
  OutOfGpuMemory(const Gpu& gpu, std::size_t bytes, std::size_t in_use)
      : OutOfDeviceMemory(bytes, in_use, gpu.memory_bytes()),
        words_(std::make_shared<const std::string>(
            gpu.name() + ": out of memory: " + std::to_string(bytes) + " bytes asked for, " +
            std::to_string(in_use) + " in use by this backend, the device has " +
            std::to_string(gpu.memory_bytes()) +
            "; use gradient checkpointing or a smaller batch, or see with nvidia-smi who else "
            "uses the device")) {}
  const char* what() const noexcept override { return words_->c_str(); }

 private:
  std::shared_ptr<const std::string> words_;  // shared: copies of exceptions must not throw
};

}  // namespace

BlockCache::BlockCache(std::shared_ptr<const Gpu> gpu)
    : gpu_(std::move(gpu)),
      pool_({.allocate = [this](std::size_t size) { return allocate(size); },
             .free = [this](void* block) { free(block); },
             .unit = kUnit,
             // Freeing waits for the device: only where memory is out.
             .waiting_max = gpu_->memory_bytes()}) {}

void* BlockCache::take(std::size_t bytes) {
  void* const block = pool_.take(bytes);
  if (block == nullptr) throw OutOfGpuMemory(*gpu_, bytes, pool_.lent_bytes());
  return block;
}

void* BlockCache::allocate(std::size_t size) const {
  const Gpu::Scope scope(*gpu_);
  CUdeviceptr block = 0;
  const CUresult result = gpu_->api().MemAlloc(&block, size);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return nullptr;
  if (result != CUDA_SUCCESS) gpu_->fail(result, "allocating " + std::to_string(size) + " bytes");
  return reinterpret_cast<void*>(block);
}

// Freeing waits for the device, so work that is enqueued may have the block until then.
void BlockCache::free(void* block) const {
  const Gpu::QuietScope scope(*gpu_);
  if (scope) gpu_->api().MemFree(reinterpret_cast<CUdeviceptr>(block));
}

}  // namespace unisono::train
