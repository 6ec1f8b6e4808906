// How a test's thread waits for others that want the same processors.
#pragma once

#include <sched.h>

#include <chrono>
#include <thread>

namespace unisono::test {

/// Yields, and each 50th time of a thread sleeps for a moment: a scheduler may put a thread's next
/// turn off further with each yield, beside busy programs for seconds, and who sleeps begins anew.
inline void give_way() {
  static thread_local unsigned times = 0;
  if (++times % 50 != 0) {
    sched_yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace unisono::test
