// Random bytes from the system. Those of OpenSSL stand behind locks that a forked child may find
// held for ever. Thread rule: any thread.
#pragma once

#include <sys/random.h>

#include <cerrno>
#include <cstddef>

namespace unisono {

/// Up to 256 bytes. False: the system gives none.
inline bool fill_with_random(void* memory, std::size_t bytes) {
  ssize_t given;
  do {
    given = ::getrandom(memory, bytes, 0);
  } while (given < 0 && errno == EINTR);
  return given == static_cast<ssize_t>(bytes);
}

}  // namespace unisono
