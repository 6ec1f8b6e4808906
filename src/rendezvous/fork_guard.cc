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

NoFork::NoFork() {
  install_handlers();
  guarded().mutex.lock();
}

NoFork::~NoFork() { guarded().mutex.unlock(); }

GuardedFd::GuardedFd(UniqueFd fd) : GuardedFd(std::move(fd), NoFork()) {}

GuardedFd::GuardedFd(UniqueFd fd, const NoFork& /*no_fork*/) : fd_(std::move(fd)) {
  if (fd_) guarded().fds.insert(fd_.get());
}

GuardedFd& GuardedFd::operator=(GuardedFd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::move(other.fd_);
  }
  return *this;
}

// A child that is forked in the midst would hold open what ends here.
void GuardedFd::reset() {
  if (!fd_) return;
  const NoFork no_fork;
  guarded().fds.erase(fd_.get());
  fd_.reset();
}

}  // namespace unisono::rendezvous
