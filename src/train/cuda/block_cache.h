// Device memory by rounded size. Blocks that are given back are used again, in the order of the
// main stream, without asking the driver, whose allocations wait for the device. Any thread.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "train/cuda/gpu.h"

namespace unisono::train {

class BlockCache {
 public:
  explicit BlockCache(std::shared_ptr<const Gpu> gpu);
  ~BlockCache();
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  /// 256-byte aligned, never null. OutOfDeviceMemory names the device, once all that waits here is
  /// given back and it still does not fit.
  void* take(std::size_t bytes);
  /// `bytes` as they were taken. Work in the main stream may still use the block.
  void give(void* block, std::size_t bytes) noexcept;

 private:
  void* allocate(std::size_t size);
  void clear();  // with the mutex held

  const std::shared_ptr<const Gpu> gpu_;
  std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> waiting_;  // by size
  std::size_t waiting_bytes_ = 0, lent_bytes_ = 0;
};

/// A block that goes back at the end of its scope.
class Scratch {
 public:
  Scratch(BlockCache& blocks, std::size_t bytes)
      : blocks_(blocks), bytes_(bytes), block_(blocks.take(bytes)) {}
  ~Scratch() { blocks_.give(block_, bytes_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* get() const { return block_; }

 private:
  BlockCache& blocks_;
  const std::size_t bytes_;
  void* const block_;
};

}  // namespace unisono::train
