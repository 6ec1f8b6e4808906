// Making communicators from communicators.
#pragma once

#include <memory>

#include "comm/communicator_state.h"

namespace unisono::detail {

/// Collective over `parent`. Null for a negative color.
Result<std::shared_ptr<CommunicatorState>> split(CommunicatorState& parent, int color, int key);

/// For a communicator whose first member this rank is, never used again; 0: none is left. Any
/// thread.
std::uint32_t take_communicator_id(Runtime& runtime);

/// The communicator of all ranks of the job.
Result<std::shared_ptr<CommunicatorState>> make_world(std::shared_ptr<Runtime> runtime);

}  // namespace unisono::detail
