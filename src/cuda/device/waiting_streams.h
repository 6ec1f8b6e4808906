// Streams of a process that wait for words of memory on one device, which the host or another
// process writes. A device has few hardware queues, CUDA_DEVICE_MAX_CONNECTIONS of each kind (for
// kernels, for copies out, for copies in), and a driver puts a stream into one that is free. While
// streams that wait have all of a kind nothing of that kind goes on, whatever its priority:
// measured on an H200 (docs/gpu.md, "What the first runs showed").
//
// Thread rule: any thread.
#pragma once

#include <algorithm>
#include <mutex>
#include <vector>

#include "cuda/driver/cuda_api.h"

namespace unisono::device {

class WaitingStreams {
 public:
  /// Of a device with so many queues: half of them are for streams that wait.
  explicit WaitingStreams(int queues) : streams_max_(static_cast<std::size_t>(queues) / 2) {}

  /// One more call waits in `stream` until leave(). False where more streams wait then than leave
  /// queues for others.
  bool enter(CUstream stream) {
    const std::lock_guard guard(mutex_);
    const auto known = find(stream);
    if (known != waiting_.end()) {
      ++known->calls;
    } else {
      waiting_.push_back({stream, 1});
    }
    return waiting_.size() <= streams_max_;
  }
  void leave(CUstream stream) {
    const std::lock_guard guard(mutex_);
    const auto known = find(stream);
    if (--known->calls > 0) return;
    *known = waiting_.back();
    waiting_.pop_back();
  }

 private:
  struct Waiting {
    CUstream stream;
    int calls;
  };
  std::vector<Waiting>::iterator find(CUstream stream) {
    return std::find_if(waiting_.begin(), waiting_.end(),
                        [&](const Waiting& each) { return each.stream == stream; });
  }

  const std::size_t streams_max_;
  std::mutex mutex_;
  std::vector<Waiting> waiting_;  // few, and memory for them is kept
};

}  // namespace unisono::device
