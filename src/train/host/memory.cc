// The host's memory, and the backend that tensors of no device use.
#include <algorithm>

#include "train/host/host_backend.h"
#include "train/host/storage.h"

namespace unisono::train {

const std::shared_ptr<Backend>& host_backend() {
  static const auto* const backend = new std::shared_ptr<Backend>(std::make_shared<HostBackend>());
  return *backend;
}

bool HostBackend::is_host() const { return true; }
void* HostBackend::take(std::size_t bytes) { return take_block(bytes); }
void HostBackend::give(void* block, std::size_t bytes) noexcept { give_block(block, bytes); }
void HostBackend::read(const float* from, std::size_t count, float* host) {
  std::copy_n(from, count, host);
}
void HostBackend::write(const float* host, std::size_t count, float* to) {
  std::copy_n(host, count, to);
}
void HostBackend::copy(const float* from, std::size_t count, float* to) {
  std::copy_n(from, count, to);
}

}  // namespace unisono::train
