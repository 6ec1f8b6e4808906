#include "train/model/block_pool.h"

#include <algorithm>
#include <new>
#include <utility>

namespace unisono::train {

// A power of two would waste half; steps of an eighth of one let nearby batch sizes share.
std::size_t BlockPool::rounded_up(std::size_t bytes) const {
  std::size_t unit = source_.unit;
  while (bytes / unit > 16) unit *= 2;
  return std::max((bytes + unit - 1) / unit, std::size_t{1}) * unit;
}

void* BlockPool::take_waiting(std::size_t size) {
  const std::lock_guard lock(mutex_);
  const auto found = waiting_.find(size);
  if (found == waiting_.end() || found->second.empty()) return nullptr;
  void* block = found->second.back();
  found->second.pop_back();
  waiting_bytes_ -= size;
  lent_bytes_ += size;
  return block;
}

void* BlockPool::take(std::size_t bytes) {
  const std::size_t size = rounded_up(bytes);
  if (void* block = take_waiting(size)) return block;
  void* block = source_.allocate(size);
  if (block == nullptr) {
    clear();
    block = source_.allocate(size);
  }
  if (block == nullptr) return nullptr;
  const std::lock_guard lock(mutex_);
  lent_bytes_ += size;
  return block;
}

bool BlockPool::keep(void* block, std::size_t size) {
  const std::lock_guard lock(mutex_);
  lent_bytes_ -= size;
  if (size > source_.waiting_max || waiting_bytes_ > source_.waiting_max - size) return false;
  try {
    waiting_[size].push_back(block);
  } catch (const std::bad_alloc&) {
    return false;  // no memory to remember it by
  }
  waiting_bytes_ += size;
  return true;
}

void BlockPool::give(void* block, std::size_t bytes) noexcept {
  if (keep(block, rounded_up(bytes))) return;
  // What waits is of sizes that are asked for no more, or too much.
  clear();
  source_.free(block);
}

void BlockPool::clear() noexcept {
  decltype(waiting_) freed;
  {
    const std::lock_guard lock(mutex_);
    freed.swap(waiting_);
    waiting_bytes_ = 0;
  }
  for (const auto& [size, blocks] : freed) {
    for (void* block : blocks) source_.free(block);
  }
}

std::size_t BlockPool::lent_bytes() const {
  const std::lock_guard lock(mutex_);
  return lent_bytes_;
}

}  // namespace unisono::train
