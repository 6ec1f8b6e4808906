// A first-in first-out queue of at most N elements that never allocates.
#pragma once

#include <array>
#include <cstddef>
#include <utility>

#include "base/assert.h"

namespace unisono::verbs {

template <typename T, std::size_t N>
class FixedQueue {
 public:
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  bool full() const { return size_ == N; }
  T& operator[](std::size_t index) { return slots_[(first_ + index) % N]; }
  const T& operator[](std::size_t index) const { return slots_[(first_ + index) % N]; }
  T& front() { return slots_[first_]; }
  T& push_back(T value) {
    UNISONO_ASSERT(!full(), "more elements than the queue has room for");
    T& slot = slots_[(first_ + size_++) % N];
    slot = std::move(value);
    return slot;
  }
  void pop_front() {
    front() = T();
    first_ = (first_ + 1) % N;
    --size_;
  }
  void clear() {
    while (!empty()) pop_front();
  }

 private:
  std::array<T, N> slots_{};
  std::size_t first_ = 0;
  std::size_t size_ = 0;
};

}  // namespace unisono::verbs
