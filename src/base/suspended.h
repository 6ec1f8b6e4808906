// How long the machine was suspended, which Clock does not count.
//
// Thread rule: any thread.
#pragma once

#include <time.h>

#include "base/clock.h"

namespace unisono {

/// Since it was booted. Of a virtual machine that its host has paused neither clock knows.
inline Duration time_suspended() {
  timespec awake{}, all{};
  if (::clock_gettime(CLOCK_MONOTONIC, &awake) != 0 || ::clock_gettime(CLOCK_BOOTTIME, &all) != 0) {
    return Duration::zero();
  }
  return std::chrono::seconds(all.tv_sec - awake.tv_sec) +
         std::chrono::nanoseconds(all.tv_nsec - awake.tv_nsec);
}

}  // namespace unisono
