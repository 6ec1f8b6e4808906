// Memory that the other ranks of a host read in place.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "unisono/communicator.h"
#include "unisono/export.h"
#include "unisono/types.h"

namespace unisono {

/// Memory that the other ranks of this host can read in place: large collectives on it move each
/// byte once, but up to 1 MiB where two copies were measured to be faster. 64-byte aligned. Needs
/// an open communicator and belongs to this rank of its job, so that other communicators of the
/// rank may use it as well. kCuda: on the rank's device (InitOptions::device, or the first one),
/// 512-byte aligned. Any thread. Throws kOutOfResources;
/// kUnsupported where there is no device; kInvalidArgument for more than 2^47 bytes, the bound of
/// every buffer; kNotMember and kClosed.
UNISONO_API void* allocate(Communicator& communicator, std::size_t bytes,
                           MemoryKind kind = MemoryKind::kHost);
/// Gives memory of allocate() back, which no call may be using; null is fine. Any thread. The
/// communicator may be closed, or another one of the rank. Throws kInvalidArgument for what
/// allocate() has not returned, and kNotMember. What is never given back is gone once the last
/// Communicator of the job is destroyed.
UNISONO_API void release(Communicator& communicator, void* pointer);

namespace detail {
/// Bytes of `count` elements; throws kInvalidArgument where no buffer can have as many.
UNISONO_API std::size_t allocated_bytes(std::size_t count, std::size_t element_bytes);
/// allocate(), released by whoever is the last to have it.
UNISONO_API std::shared_ptr<void> allocate_owned(Communicator& communicator, std::size_t bytes);
}  // namespace detail

/// A typed array in memory of allocate(), which it releases in the end. It may outlive its
/// communicator and the job. The constructor throws as allocate(), nothing else throws. Thread
/// rule: that of an array; it may be made and destroyed by any thread.
template <Element T>
class SharedBuffer {
 public:
  SharedBuffer(Communicator& communicator, std::size_t count)
      : memory_(detail::allocate_owned(communicator, detail::allocated_bytes(count, sizeof(T)))),
        count_(count) {}
  SharedBuffer(SharedBuffer&& other) noexcept
      : memory_(std::move(other.memory_)), count_(std::exchange(other.count_, 0)) {}
  SharedBuffer& operator=(SharedBuffer&& other) noexcept {
    memory_ = std::move(other.memory_);
    count_ = std::exchange(other.count_, 0);
    return *this;
  }
  T* data() { return static_cast<T*>(memory_.get()); }
  const T* data() const { return static_cast<const T*>(memory_.get()); }
  std::size_t size() const { return count_; }
  T* begin() { return data(); }
  T* end() { return data() + count_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + count_; }
  T& operator[](std::size_t index) { return data()[index]; }
  const T& operator[](std::size_t index) const { return data()[index]; }

 private:
  std::shared_ptr<void> memory_;
  std::size_t count_;
};

}  // namespace unisono
