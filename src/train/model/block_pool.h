// Blocks of memory that are used again: a training step takes the same large ones as the step
// before, and asking the system or a driver for them costs more than the arithmetic on them.
//
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

namespace unisono::train {

class BlockPool {
 public:
  struct Source {
    /// Of so many bytes, a multiple of `unit`; null: there are none left. May throw.
    std::function<void*(std::size_t size)> allocate;
    std::function<void(void* block)> free;  ///< does not throw
    /// Power of two: what sizes are rounded up to at least.
    std::size_t unit = 64;
    /// More than these bytes do not wait: sizes that nobody asks for any more would fill it.
    std::size_t waiting_max = 0;
  };

  explicit BlockPool(Source source) : source_(std::move(source)) {}
  ~BlockPool() { clear(); }
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  /// Null: out of memory, with nothing waiting here.
  void* take(std::size_t bytes);
  /// `bytes` as they were taken.
  void give(void* block, std::size_t bytes) noexcept;
  /// Given back to the source.
  void clear() noexcept;
  std::size_t lent_bytes() const;

 private:
  std::size_t rounded_up(std::size_t bytes) const;
  void* take_waiting(std::size_t size);
  bool keep(void* block, std::size_t size);

  const Source source_;
  mutable std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> waiting_;  // by size
  std::size_t waiting_bytes_ = 0, lent_bytes_ = 0;
};

}  // namespace unisono::train
