// The memory of a measurement: one arena per rank, touched before use, either ordinary memory or
// from unisono::allocate, of the host or of the rank's device. Owned by the measurement; one
// thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tools/perf/device_buffers.h"
#include "tools/perf/options.h"
#include "unisono/shared_buffer.h"

namespace unisono::perf {

/// kOutOfResources where the arenas that so many ranks of this host are about to make, one of each
/// kind, do not fit into its memory.
Status check_fits(int ranks_here, std::size_t arena_bytes, int kinds);
int ranks_on_this_host(const Communicator& communicator);

class Arena {
 public:
  /// Throws Error (kOutOfResources) with the size and what to do.
  /// `device`: its memory, or the host's where it is null; must outlive this.
  Arena(Communicator& communicator, BufferKind kind, std::size_t bytes, DeviceBuffers* device);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  std::byte* data() { return data_; }
  std::size_t bytes() const { return bytes_; }
  /// Writes all of it: the caches then hold its end. On a device: in the order of its stream.
  void sweep();

 private:
  Communicator& communicator_;
  BufferKind kind_;
  std::size_t bytes_;
  DeviceBuffers* device_;
  std::byte* data_ = nullptr;
};

}  // namespace unisono::perf
