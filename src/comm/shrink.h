// Going on after a failure: the survivors of a communicator agree on who they are, by way of the
// job's arbiter (rendezvous/failure/shrink_agreements.h), and make a communicator of those.
#pragma once

#include <chrono>
#include <memory>

#include "comm/communicator_state.h"

namespace unisono::detail {

/// Collective over those members of `parent` that are left: see Communicator::shrink(). Ranks in an
/// error are those of `parent`.
Result<std::shared_ptr<CommunicatorState>> shrink(CommunicatorState& parent,
                                                  std::chrono::milliseconds patience);

}  // namespace unisono::detail
