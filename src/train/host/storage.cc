// Blocks of memory for tensors, large ones in one pool for all threads, for replicas are threads
// that come and go.
#include "train/host/storage.h"

#include <cstdlib>
#include <new>

#include "base/sanitizers.h"
#include "train/model/block_pool.h"

namespace unisono::train {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kLarge = std::size_t{32} << 10;  // smaller ones malloc keeps by itself
#if UNISONO_ADDRESS_SANITIZER
constexpr std::size_t kWaitingMax = 0;  // the sanitizer sees a use after free only in freed memory
#else
constexpr std::size_t kWaitingMax = std::size_t{256} << 20;
#endif

void* allocate(std::size_t size) { return std::aligned_alloc(kAlignment, size); }

/// Never destroyed: tensors with static lifetime may outlive it.
BlockPool& large_blocks() {
  static auto* const pool = new BlockPool({allocate, std::free, kAlignment, kWaitingMax});
  return *pool;
}

std::size_t whole_lines(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

void* take_block(std::size_t bytes) {
  void* block = bytes >= kLarge ? large_blocks().take(bytes) : allocate(whole_lines(bytes));
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

void give_block(void* block, std::size_t bytes) noexcept {
  if (bytes >= kLarge) return large_blocks().give(block, bytes);
  std::free(block);
}

}  // namespace unisono::train
