// How a test waits for what others do.
#pragma once

#include <sched.h>

#include <chrono>
#include <functional>
#include <thread>

#include "base/clock.h"

namespace unisono::test {

/// True as soon as `condition` holds, false when it did not for 30 s: what is awaited happens
/// within milliseconds, on a loaded machine within seconds. Yields at first, so that what follows
/// comes at once; who waits for longer leaves the processor to the others.
[[nodiscard]] inline bool eventually(const std::function<bool()>& condition) {
  const TimePoint begin = Clock::now();
  while (!condition()) {
    const Duration waited = Clock::now() - begin;
    if (waited > std::chrono::seconds(30)) return false;
    if (waited < std::chrono::milliseconds(10)) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return true;
}

}  // namespace unisono::test
