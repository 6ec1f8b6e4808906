// A profiler's timer: while this lives, signals interrupt what threads of the process do, and
// system calls that can be interrupted are (no SA_RESTART). Thread rule: one at a time in a
// process.
#pragma once

#include <sys/time.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>

namespace unisono::test {

class Interruptions {
 public:
  explicit Interruptions(std::chrono::microseconds every) {
    struct sigaction action {};
    action.sa_handler = [](int) { counted().fetch_add(1, std::memory_order_relaxed); };
    counted() = 0;
    sigaction(SIGALRM, &action, &before_);
    set(every);
  }
  ~Interruptions() {
    set({});
    sigaction(SIGALRM, &before_, nullptr);
  }
  Interruptions(const Interruptions&) = delete;

  std::size_t count() const { return counted().load(std::memory_order_relaxed); }

 private:
  static std::atomic<std::size_t>& counted() {
    static std::atomic<std::size_t> count{0};
    return count;
  }
  static void set(std::chrono::microseconds every) {
    const timeval interval{0, static_cast<suseconds_t>(every.count())};
    const itimerval timer{interval, interval};
    setitimer(ITIMER_REAL, &timer, nullptr);
  }

  struct sigaction before_ {};
};

}  // namespace unisono::test
