// The account behind DeviceMemory, and the calling thread's current one. Tensors charge and credit
// it, and so does what holds memory of another kind (buckets that peers read); any thread may.
#pragma once

#include <atomic>
#include <memory>

#include "unisono/train/tensor.h"

namespace unisono::train {

struct DeviceMemory::Account {
  std::atomic<std::size_t> now{0}, peak{0}, limit{0};

  /// Throws OutOfDeviceMemory, and is then as before.
  void charge(std::size_t bytes);
  void credit(std::size_t bytes) { now -= bytes; }
};

/// Of the innermost scope on this thread; null: nobody is charged.
const std::shared_ptr<DeviceMemory::Account>* current_account();

/// Bytes that no tensor holds, charged to the calling thread's account while this lives.
class MemoryCharge {
 public:
  MemoryCharge() = default;
  explicit MemoryCharge(std::size_t bytes);  ///< throws OutOfDeviceMemory
  MemoryCharge(MemoryCharge&& other) noexcept;
  MemoryCharge& operator=(MemoryCharge&& other) noexcept;
  ~MemoryCharge();

 private:
  std::shared_ptr<DeviceMemory::Account> account_;  // null: nobody
  std::size_t bytes_ = 0;
};

}  // namespace unisono::train
