// Sockets of this process that its forked children do not have. Without that a data loader forked
// by a rank would hold the rank's control connection open after the rank was killed, so that nobody
// noticed; and the child's destructors would say goodbye in the parent's name. In the child the
// descriptor refers to /dev/null from the fork on.
//
// Thread rule: any thread; fork() may happen on any other.
#pragma once

#include "base/unique_fd.h"

namespace unisono::rendezvous {

/// While it lives no thread of this process forks: around the making of a socket that is guarded
/// from the beginning, which must not wait. No other one, nor a GuardedFd that holds a descriptor,
/// may be made or end in the same thread meanwhile.
class NoFork {
 public:
  NoFork();
  ~NoFork();
  NoFork(const NoFork&) = delete;
  NoFork& operator=(const NoFork&) = delete;
};

class GuardedFd {
 public:
  GuardedFd() = default;
  /// A child that was forked between the making of `fd` and this has it.
  explicit GuardedFd(UniqueFd fd);
  /// Of one that was made while there was no fork: no child has it.
  GuardedFd(UniqueFd fd, const NoFork& no_fork);
  GuardedFd(GuardedFd&& other) noexcept = default;
  GuardedFd& operator=(GuardedFd&& other) noexcept;
  ~GuardedFd() { reset(); }

  int get() const { return fd_.get(); }
  explicit operator bool() const { return static_cast<bool>(fd_); }
  void reset();

 private:
  UniqueFd fd_;
};

}  // namespace unisono::rendezvous
