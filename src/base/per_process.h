// State that a process has once. A forked child begins with its own: its parent's may be locked for
// ever, or half changed, by threads that the child lacks.
//
// Thread rule: any thread; fork() may happen on any other.
#pragma once

#include <pthread.h>

#include <atomic>
#include <memory>

namespace unisono {
namespace detail {

inline constinit std::atomic<int> forks{0};
// Before main(): whoever asks first may be in the middle of it when another thread forks.
inline const int forks_are_counted =
    ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });

}  // namespace detail

/// How often this process is a fork of one before it: quicker than to ask the system which it is.
inline int forks_so_far() { return detail::forks.load(std::memory_order_relaxed); }

/// A T with whatever locks it needs, made when it is first asked for and never destroyed: threads
/// that outlive main() find it. Threads that ask first at once may make several, of which one is
/// taken. Declare it constinit, outside functions: a static of a function has a lock, too.
template <typename T>
class PerProcess {
 public:
  constexpr PerProcess() = default;
  PerProcess(const PerProcess&) = delete;

  T& get() {
    Made* made = made_.load(std::memory_order_acquire);
    while (made == nullptr || made->forks != forks_so_far()) {
      auto mine = std::make_unique<Made>();
      mine->parents = made;
      if (made_.compare_exchange_weak(made, mine.get(), std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
        made = mine.release();
      }
    }
    return made->value;
  }
  /// Null where this process has not asked for it: for its end.
  T* find() {
    Made* const made = made_.load(std::memory_order_acquire);
    return made == nullptr || made->forks != forks_so_far() ? nullptr : &made->value;
  }

 private:
  struct Made {
    T value;
    const int forks = forks_so_far();
    Made* parents = nullptr;  // stays as it is
  };
  std::atomic<Made*> made_{nullptr};
};

}  // namespace unisono
