// Memory that peers read in place, on the device of the calling thread's tensors and charged to it:
// gradient buckets and the like. On the host it is the communicator's (`unisono::allocate`), which
// peers have mapped; on a GPU any device memory will do, so it comes from the pool and goes back to
// it without the driver.
//
// Threads: one thread at a time, the communicator's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <optional>

#include "train/model/backend.h"
#include "train/model/device_memory.h"
#include "unisono/shared_buffer.h"

namespace unisono::train {

template <typename T>
class CommunicationBuffer {
 public:
  /// At least one element. Throws OutOfDeviceMemory and what allocate() throws.
  CommunicationBuffer(Communicator& communicator, std::size_t count)
      : count_(std::max<std::size_t>(count, 1)) {
    if (backend_.is_host()) {
      charge_ = MemoryCharge(count_ * sizeof(T));
      of_communicator_.emplace(communicator, count_);
    } else {
      of_device_ = Tensor::uninitialised({(count_ * sizeof(T) + 3) / sizeof(float)});
    }
  }
  /// What the streams still do with it comes before what the memory is used for next.
  ~CommunicationBuffer() {
    try {
      backend_.main_follows_side();
    } catch (const std::exception&) {
      // A device that has failed: its next call says so, and nothing uses the memory any more.
    }
  }
  CommunicationBuffer(const CommunicationBuffer&) = delete;
  CommunicationBuffer& operator=(const CommunicationBuffer&) = delete;

  T* data() {
    return of_communicator_ ? of_communicator_->data() : reinterpret_cast<T*>(of_device_.data());
  }
  std::size_t size() const { return count_; }

 private:
  Backend& backend_ = current_backend();
  const std::size_t count_;
  MemoryCharge charge_;
  std::optional<SharedBuffer<T>> of_communicator_;
  Tensor of_device_;  // keeps the backend
};

}  // namespace unisono::train
