// Has the production's clock (base/clock.h) show the time of a simulation while that runs: native
// calls read it when they try paths, and when they wait for the cause of a failure. Nor does
// anybody yield the processor then.
//
// Thread rule: while one lives no other thread may read the clock.
#pragma once

#include "tests/sim/schedule.h"

namespace unisono::sim {

class VirtualClock {
 public:
  explicit VirtualClock(const Schedule& schedule);
  ~VirtualClock();
  VirtualClock(const VirtualClock&) = delete;
};

}  // namespace unisono::sim
