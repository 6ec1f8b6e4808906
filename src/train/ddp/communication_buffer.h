// Memory that peers read in place, on the device of the calling thread's tensors and charged to it:
// gradient buckets and the like.
//
// Threads: one thread at a time, the communicator's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>

#include "train/model/backend.h"
#include "train/model/device_memory.h"
#include "unisono/communicator.h"

namespace unisono::train {

template <typename T>
class CommunicationBuffer {
 public:
  /// At least one element. Throws OutOfDeviceMemory and what allocate() throws.
  CommunicationBuffer(Communicator& communicator, std::size_t count)
      : backend_(current_backend()),
        charge_(std::max<std::size_t>(count, 1) * sizeof(T)),
        memory_(communicator, std::max<std::size_t>(count, 1), backend_.kind()) {}
  /// Waits for what the streams still do with it.
  ~CommunicationBuffer() {
    try {
      backend_.wait();
    } catch (const std::exception&) {
      // A device that has failed: its next call says so, and nothing uses the memory any more.
    }
  }
  CommunicationBuffer(const CommunicationBuffer&) = delete;
  CommunicationBuffer& operator=(const CommunicationBuffer&) = delete;

  T* data() { return memory_.data(); }
  std::size_t size() const { return memory_.size(); }

 private:
  Backend& backend_;
  MemoryCharge charge_;  // keeps the backend where that is not the host's
  SharedBuffer<T> memory_;
};

}  // namespace unisono::train
