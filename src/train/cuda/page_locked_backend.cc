// Page-locked memory as a backend: for batches that wait for a GPU.
#include <memory>

#include "train/cuda/cuda_backend.h"
#include "train/host/host_backend.h"
#include "train/model/block_pool.h"

namespace unisono::train {
namespace {

constexpr std::size_t kWaitingMax = std::size_t{256} << 20;

class PageLockedBackend final : public HostBackend {
 public:
  explicit PageLockedBackend(std::shared_ptr<PageLockedMemory> memory)
      : memory_(std::move(memory)),
        blocks_({.allocate = [this](std::size_t size) { return memory_->take(size); },
                 .free = [this](void* block) { memory_->give(block); },
                 .waiting_max = kWaitingMax}) {}

  bool is_page_locked() const override { return true; }
  void* take(std::size_t bytes) override { return blocks_.take(bytes); }
  void give(void* block, std::size_t bytes) noexcept override { blocks_.give(block, bytes); }

 private:
  const std::shared_ptr<PageLockedMemory> memory_;
  BlockPool blocks_;
};

}  // namespace

std::shared_ptr<Backend> make_page_locked_backend(int device) {
  return std::make_shared<PageLockedBackend>(make_page_locked_memory(device));
}

}  // namespace unisono::train
