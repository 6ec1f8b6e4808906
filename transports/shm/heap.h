// One rank's memory that every rank of the host can read in place: a sparse memfd with a first-fit
// allocator whose book-keeping lies outside the shared pages, where no peer can damage it.
//
// Thread rule: any thread; one lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "transports/shm/segment.h"

namespace unisono::shm {

/// Address space of a heap; only what is allocated uses memory.
inline constexpr std::size_t kHeapBytesMax = std::size_t{64} << 30;
inline constexpr std::size_t kHeapBytesMin = std::size_t{1} << 20;

/// What each heap may take where the address space has a limit (RLIMIT_AS) and is also needed for
/// the heaps of `ranks` ranks, a segment of `segment_bytes` and, as much as a heap, the program. At
/// most kHeapBytesMax.
std::size_t share_of_heap(std::size_t segment_bytes, std::size_t ranks);

class Heap {
 public:
  /// As large as the system allows between kHeapBytesMin and `bytes`.
  static Result<std::unique_ptr<Heap>> create(std::size_t bytes = kHeapBytesMax);

  /// Page-aligned and reserved; zero-filled.
  Result<void*> allocate(std::size_t bytes);
  Status release(void* pointer);

  /// True when [pointer, pointer + bytes) lies in this heap. No lock.
  bool locate(const void* pointer, std::size_t bytes, std::uint64_t* offset) const {
    const std::size_t at = reinterpret_cast<std::uintptr_t>(pointer) -
                           reinterpret_cast<std::uintptr_t>(mapping_->base());
    if (at >= mapping_->bytes() || bytes > mapping_->bytes() - at) return false;
    *offset = at;
    return true;
  }
  const std::shared_ptr<Mapping>& mapping() const { return mapping_; }

 private:
  using Ranges = std::map<std::size_t, std::size_t>;  // offset -> bytes
  explicit Heap(std::shared_ptr<Mapping> mapping);
  void give_back(Ranges::node_type range);

  std::shared_ptr<Mapping> mapping_;
  mutable std::mutex mutex_;
  Ranges free_;  // never adjacent
  Ranges used_;
  std::size_t used_bytes_ = 0;
};

}  // namespace unisono::shm
