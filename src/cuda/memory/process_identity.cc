#include "cuda/memory/process_identity.h"

#include <unistd.h>

#include <cstring>
#include <mutex>

#include "base/handshake.h"

namespace unisono::cuda {

ProcessIdentity process_identity() {
  static std::mutex mutex;
  static ProcessIdentity identity;
  const std::lock_guard lock(mutex);
  const auto pid = static_cast<std::int32_t>(::getpid());
  if (identity.pid != pid) {
    identity.pid = pid;
    do {
      std::memcpy(&identity.key, JobKey::random().bytes().data(), sizeof identity.key);
    } while (identity.key == 0);
  }
  return identity;
}

}  // namespace unisono::cuda
