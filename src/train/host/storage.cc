// Blocks of memory for tensors. A training step allocates the same large blocks as the one before;
// handed back to the system each would cost a page fault per 4 KiB, more than the arithmetic on it.
// So large blocks wait here, in one place for all threads, for replicas are threads that come and
// go.
#include "train/host/storage.h"

#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <vector>

namespace unisono::train {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kLarge = std::size_t{32} << 10;  // smaller ones malloc keeps by itself
#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kWaitingMax = 0;  // the sanitizer sees a use after free only in freed memory
#else
constexpr std::size_t kWaitingMax = std::size_t{256} << 20;
#endif

class Waiting {
 public:
  void* take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(bytes);
    if (found == blocks_.end() || found->second.empty()) return nullptr;
    void* block = found->second.back();
    found->second.pop_back();
    bytes_ -= bytes;
    return block;
  }

  /// False: there is no room, the block is still the caller's.
  bool give(void* block, std::size_t bytes) {
    if (bytes > kWaitingMax) return false;
    const std::lock_guard lock(mutex_);
    // Sizes that nobody asks for any more would fill it for good.
    if (bytes_ + bytes > kWaitingMax) clear();
    blocks_[bytes].push_back(block);
    bytes_ += bytes;
    return true;
  }

 private:
  void clear() {
    for (const auto& [bytes, blocks] : blocks_) {
      for (void* block : blocks) std::free(block);
    }
    blocks_.clear();
    bytes_ = 0;
  }

  std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> blocks_;  // by size
  std::size_t bytes_ = 0;
};

/// Never destroyed: tensors with static lifetime may outlive it.
Waiting& waiting() {
  static auto* blocks = new Waiting;
  return *blocks;
}

/// A power of two would waste half; steps of an eighth of one let nearby batch sizes share.
std::size_t rounded_up(std::size_t bytes) {
  std::size_t unit = kAlignment;
  while (bytes / unit > 16) unit *= 2;
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

void* take_block(std::size_t bytes) {
  const std::size_t size = rounded_up(bytes);
  void* block = size >= kLarge ? waiting().take(size) : nullptr;
  if (block == nullptr) block = std::aligned_alloc(kAlignment, size);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

void give_block(void* block, std::size_t bytes) noexcept {
  const std::size_t size = rounded_up(bytes);
  try {
    if (size >= kLarge && waiting().give(block, size)) return;
  } catch (const std::bad_alloc&) {
    // No memory to remember it by: then it goes back.
  }
  std::free(block);
}

}  // namespace unisono::train
