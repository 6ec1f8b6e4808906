// Memory that is a file without a name (memfd_create), made as every system lets it be made. Thread
// rule: any thread.
#pragma once

#include <sys/mman.h>

#include <cerrno>

#include "base/unique_fd.h"

namespace unisono {

/// A memfd that cannot be executed, where the system knows such: without that some warn, and those
/// of vm.memfd_noexec=2 refuse. `flags` as of memfd_create(). None: errno says why.
inline UniqueFd make_memfd(const char* name, unsigned flags) {
  constexpr unsigned kNoExecSeal = 8;  // MFD_NOEXEC_SEAL, which older headers lack
  UniqueFd fd(::memfd_create(name, flags | kNoExecSeal));
  if (!fd && errno == EINVAL) fd.reset(::memfd_create(name, flags));  // before Linux 6.3
  return fd;
}

}  // namespace unisono
