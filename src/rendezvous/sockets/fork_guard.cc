#include "rendezvous/sockets/fork_guard.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

namespace unisono::rendezvous {
namespace {

struct Guarded {
  std::mutex mutex;
  std::set<int> fds;
};

constinit std::atomic<Guarded*> instance{nullptr};

// Never destroyed: fork handlers may run after static destructors. A static of the function would
// have a lock that a child may find held.
Guarded& guarded() {
  Guarded* known = instance.load(std::memory_order_acquire);
  if (known == nullptr) {
    auto mine = std::make_unique<Guarded>();
    if (instance.compare_exchange_strong(known, mine.get(), std::memory_order_acq_rel,
                                         std::memory_order_acquire)) {
      known = mine.release();
    }
  }
  return *known;
}

// The forking thread holds the mutex across the fork, so that the child finds the set whole and
// may walk it: reading it neither allocates nor locks.
void before_fork() { guarded().mutex.lock(); }
void after_fork_in_parent() { guarded().mutex.unlock(); }
void after_fork_in_child() {
  if (guarded().fds.empty()) return guarded().mutex.unlock();
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

// Before main(): no thread is in the midst of it when another one forks.
[[maybe_unused]] const int handlers_are_installed =
    ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);

}  // namespace

NoFork::NoFork() { guarded().mutex.lock(); }

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
