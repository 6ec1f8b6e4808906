// Copying: the C library's memcpy while the data may stay in a cache, non-temporal stores beyond.
// Thread rule: pure, usable from any thread.
#include <cstring>

#include "compute/compute.h"
#include "compute/kernels.h"

namespace unisono::compute {

void copy(void* out, const void* in, std::size_t bytes) {
  if (bytes >= kStreamBytes) return copy_streaming(out, in, bytes);
  if (bytes != 0) std::memcpy(out, in, bytes);
}

void copy_streaming(void* out, const void* in, std::size_t bytes) {
  stream_bytes(out, in, bytes);
  store_fence();
}

}  // namespace unisono::compute
