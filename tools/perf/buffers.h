// The memory of a measurement: one arena per rank, touched before use, either ordinary memory or
// from unisono::allocate. Owned by the measurement; one thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tools/perf/options.h"
#include "unisono/communicator.h"

namespace unisono::perf {

class Arena {
 public:
  /// Throws Error (kOutOfResources) with the size and what to do.
  Arena(Communicator& communicator, BufferKind kind, std::size_t bytes);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  std::byte* data() { return data_; }
  std::size_t bytes() const { return bytes_; }
  /// Writes all of it: the caches then hold its end.
  void sweep();

 private:
  Communicator& communicator_;
  BufferKind kind_;
  std::size_t bytes_;
  std::byte* data_ = nullptr;
};

}  // namespace unisono::perf
