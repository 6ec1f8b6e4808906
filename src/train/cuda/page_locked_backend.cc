// Page-locked memory as a backend: for batches that wait for a GPU.
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>

#include "train/cuda/cuda_backend.h"
#include "train/host/host_backend.h"
#include "train/model/block_pool.h"

namespace unisono::train {
namespace {

constexpr std::size_t kLockedWaitingMax = std::size_t{256} << 20;

class PageLockedBackend final : public HostBackend {
 public:
  explicit PageLockedBackend(std::shared_ptr<PageLockedMemory> memory)
      : memory_(std::move(memory)),
        blocks_({.allocate = [this](std::size_t size) { return allocate(size); },
                 .free = [this](void* block) { memory_->give(block); },
                 .waiting_max = kLockedWaitingMax}) {}

  bool is_page_locked() const override { return true; }

  void* take(std::size_t bytes) override {
    if (void* block = blocks_.take(bytes)) return block;
    void* const block = HostBackend::take(bytes);
    const std::lock_guard lock(mutex_);
    pageable_.insert(block);
    return block;
  }

  void give(void* block, std::size_t bytes) noexcept override {
    {
      const std::lock_guard lock(mutex_);
      if (pageable_.erase(block) == 0) return blocks_.give(block, bytes);
    }
    HostBackend::give(block, bytes);
  }

 private:
  void* allocate(std::size_t size) const {
    try {
      return memory_->take(size);
    } catch (const std::runtime_error&) {
      return nullptr;  // no more can be locked: a copy from pageable memory takes longer, no more
    }
  }

  const std::shared_ptr<PageLockedMemory> memory_;
  BlockPool blocks_;
  std::mutex mutex_;
  std::set<void*> pageable_;
};

}  // namespace

std::shared_ptr<Backend> make_page_locked_backend(int device) {
  return std::make_shared<PageLockedBackend>(make_page_locked_memory(device));
}

}  // namespace unisono::train
