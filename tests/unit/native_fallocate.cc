#include "native_fallocate.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

// Whoever asks again and again for what cannot be done gets an error in the end.
extern "C" int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  constexpr int kPatience = 1000;
  auto& faults = unisono::test::fallocate_faults;
  if (const off_t least = faults.refused_min; least != 0 && mode == 0 && bytes >= least) {
    ++faults.refused;
    errno = ENOMEM;
    return -1;
  }
  if (const off_t most = faults.at_once_max; most != 0 && bytes > most) {
    errno = ++faults.interrupted < kPatience ? EINTR : EIO;
    return -1;
  }
  return static_cast<int>(syscall(SYS_fallocate, fd, mode, offset, bytes));
}
