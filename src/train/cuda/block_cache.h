// Device memory by rounded size. Blocks that are given back are used again, in the order of the
// main stream, without asking the driver, whose allocations wait for the device. Any thread.
#pragma once

#include <cstddef>
#include <memory>

#include "train/cuda/gpu.h"
#include "train/model/block_pool.h"

namespace unisono::train {

class BlockCache {
 public:
  explicit BlockCache(std::shared_ptr<const Gpu> gpu);
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  /// 256-byte aligned, never null. OutOfDeviceMemory names the device, once all that waits here is
  /// given back and it still does not fit.
  void* take(std::size_t bytes);
  /// `bytes` as they were taken. Work in the main stream may still use the block.
  void give(void* block, std::size_t bytes) noexcept { pool_.give(block, bytes); }

 private:
  void* allocate(std::size_t size) const;
  void free(void* block) const;

  const std::shared_ptr<const Gpu> gpu_;
  BlockPool pool_;
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
