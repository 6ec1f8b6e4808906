// Making communicators from communicators.
#pragma once

#include <memory>
#include <span>

#include "comm/communicator_state.h"

namespace unisono::detail {

/// Collective over `parent`. Null for a negative color. `expected`: the parent's ranks that this
/// rank takes its part to consist of; kMismatch for all of a part whose ranks expect different
/// ones. Empty: whoever comes.
Result<std::shared_ptr<CommunicatorState>> split(CommunicatorState& parent, int color, int key,
                                                 std::span<const Rank> expected = {});

/// A communicator of these world ranks, in this order, of which this one is number `rank`, and the
/// job's news reach it. `native`: the memory they share; null: they use transports alone.
std::shared_ptr<CommunicatorState> make_enlisted(std::shared_ptr<Runtime> runtime, std::uint32_t id,
                                                 std::vector<Rank> members, Rank rank,
                                                 std::unique_ptr<native::Group> native);

/// A number for a communicator whose first member is this rank. No number is given twice; 0 when
/// none is left. Any thread.
std::uint32_t take_communicator_id(Runtime& runtime);

/// The communicator of all ranks of the job.
Result<std::shared_ptr<CommunicatorState>> make_world(std::shared_ptr<Runtime> runtime);
/// Has the links between the job's hosts measured, where there are several. Collective, after
/// make_world() and before any other communicator of the job is made. Errors as those of a call
/// between the hosts, with the setting that leaves it.
Status learn_links(const std::shared_ptr<Runtime>& runtime, TimePoint deadline);

}  // namespace unisono::detail
