// Making communicators from communicators.
#pragma once

#include <memory>

#include "comm/communicator_state.h"

namespace unisono::detail {

/// Collective over `parent`. Null for a negative color.
Result<std::shared_ptr<CommunicatorState>> split(CommunicatorState& parent, int color, int key);

/// The communicator of all ranks of the job.
Result<std::shared_ptr<CommunicatorState>> make_world(std::shared_ptr<Runtime> runtime);

}  // namespace unisono::detail
