// The order in which calls of a process come into the streams of a device. A stream waits for other
// processes in the order that they have too, so calls come in as they were made, whatever their
// communicators and jobs.
//
// Thread rule: any thread.
#pragma once

#include <deque>
#include <mutex>

namespace unisono::device {

class StreamOrder {
 public:
  void line_up(const void* call) {
    const std::lock_guard lock(mutex_);
    line_.push_back(call);
  }
  bool is_first(const void* call) {
    const std::lock_guard lock(mutex_);
    return line_.front() == call;
  }
  void leave(const void* call) {
    const std::lock_guard lock(mutex_);
    std::erase(line_, call);
  }

 private:
  std::mutex mutex_;
  std::deque<const void*> line_;
};

}  // namespace unisono::device
