#include "train/cuda/block_cache.h"

#include <algorithm>
#include <new>

#include "unisono/train/tensor.h"

namespace unisono::train {
namespace {

/// Of the device's memory; more is given back to the driver, for sizes that nobody asks for any
/// more would fill it for good.
constexpr std::size_t kWaitingShare = 4;

/// A power of two would waste half; steps of an eighth of one let nearby batch sizes share.
std::size_t rounded_up(std::size_t bytes) {
  std::size_t unit = 256;
  while (bytes / unit > 16) unit *= 2;
  return std::max((bytes + unit - 1) / unit, std::size_t{1}) * unit;
}

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

BlockCache::BlockCache(std::shared_ptr<const Gpu> gpu) : gpu_(std::move(gpu)) {}

BlockCache::~BlockCache() { clear(); }

void* BlockCache::take(std::size_t bytes) {
  const std::size_t size = rounded_up(bytes);
  const std::lock_guard lock(mutex_);
  const auto found = waiting_.find(size);
  void* block = nullptr;
  if (found != waiting_.end() && !found->second.empty()) {
    block = found->second.back();
    found->second.pop_back();
    waiting_bytes_ -= size;
  } else {
    block = allocate(size);
    if (block == nullptr && waiting_bytes_ > 0) {
      clear();
      block = allocate(size);
    }
    if (block == nullptr) throw OutOfGpuMemory(*gpu_, bytes, lent_bytes_);
  }
  lent_bytes_ += size;
  return block;
}

void* BlockCache::allocate(std::size_t size) {
  const Gpu::Scope scope(*gpu_);
  CUdeviceptr block = 0;
  const CUresult result = gpu_->api().MemAlloc(&block, size);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return nullptr;
  if (result != CUDA_SUCCESS) gpu_->fail(result, "allocating " + std::to_string(size) + " bytes");
  return reinterpret_cast<void*>(block);
}

void BlockCache::give(void* block, std::size_t bytes) noexcept {
  const std::size_t size = rounded_up(bytes);
  const std::lock_guard lock(mutex_);
  lent_bytes_ -= size;
  const std::size_t most = gpu_->memory_bytes() / kWaitingShare;
  if (size <= most) {
    if (waiting_bytes_ + size > most) clear();
    try {
      waiting_[size].push_back(block);
      waiting_bytes_ += size;
      return;
    } catch (const std::bad_alloc&) {
      // No memory to remember it by: then it goes back.
    }
  }
  const Gpu::QuietScope scope(*gpu_);
  if (scope) gpu_->api().MemFree(reinterpret_cast<CUdeviceptr>(block));
}

// Freeing waits for the device, so work that is enqueued may have the blocks until then.
void BlockCache::clear() {
  const Gpu::QuietScope scope(*gpu_);
  if (scope) {
    for (const auto& [size, blocks] : waiting_) {
      for (void* block : blocks) gpu_->api().MemFree(reinterpret_cast<CUdeviceptr>(block));
    }
  }
  waiting_.clear();
  waiting_bytes_ = 0;
}

}  // namespace unisono::train
