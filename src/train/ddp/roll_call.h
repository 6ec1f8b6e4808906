// Who still has data: told by every rank at the start of every synchronised step.
#pragma once

#include <cstdint>

#include "unisono/communicator.h"

namespace unisono::train {

/// What a rank is about to do.
enum class Attendance : std::int32_t {
  kOutOfData,  ///< in join()
  kPass,       ///< forward() and backward()
  kStep,       ///< step(), which averages the loss too
};

struct RollCall {
  int active = 0;   ///< ranks with data
  Rank first = -1;  ///< the lowest of them; -1: none
  Attendance what = Attendance::kOutOfData;
};

/// Collective. Throws Error (kProtocol) for an answer that is none, and std::invalid_argument
/// when some ranks with data call step() and others forward().
RollCall call_roll(Communicator& control, Attendance mine);

}  // namespace unisono::train
