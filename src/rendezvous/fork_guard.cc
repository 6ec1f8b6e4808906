#include "rendezvous/fork_guard.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <set>
#include <utility>

namespace unisono::rendezvous {
namespace {

struct Guarded {
  std::mutex mutex;
  std::set<int> fds;
};

// Never destroyed: fork handlers may run after static destructors.
Guarded& guarded() {
  static Guarded* const instance = new Guarded;
  return *instance;
}

// The forking thread holds the mutex across the fork, so that the child finds the set whole and
// may walk it: reading it neither allocates nor locks.
void before_fork() { guarded().mutex.lock(); }
void after_fork_in_parent() { guarded().mutex.unlock(); }
void after_fork_in_child() {
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int fd : guarded().fds) {
    if (nothing >= 0) {
      ::dup3(nothing, fd, O_CLOEXEC);
    } else {
      ::close(fd);
    }
  }
  if (nothing >= 0) ::close(nothing);
  guarded().mutex.unlock();
}

void install_handlers() {
  static const bool installed = [] {
    return ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0;
  }();
  static_cast<void>(installed);
}

}  // namespace

ForkGuard::ForkGuard(int fd) : fd_(fd) {
  if (fd_ < 0) return;
  install_handlers();
  const std::lock_guard lock(guarded().mutex);
  guarded().fds.insert(fd_);
}

ForkGuard::ForkGuard(ForkGuard&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

ForkGuard& ForkGuard::operator=(ForkGuard&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

ForkGuard::~ForkGuard() {
  if (fd_ < 0) return;
  const std::lock_guard lock(guarded().mutex);
  guarded().fds.erase(fd_);
}

}  // namespace unisono::rendezvous
