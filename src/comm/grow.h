// A communicator grows: members and newcomers find each other on a list in a store
// (rendezvous/store/wait_list.h) and make a new job.
#pragma once

#include <memory>
#include <string_view>

#include "comm/communicator_state.h"
#include "config/config.h"
#include "unisono/options.h"
#include "unisono/rendezvous.h"

namespace unisono::detail {

/// Collective over the members of `parent`: see Communicator::grow(). Null where too few newcomers
/// came.
Result<std::shared_ptr<CommunicatorState>> grow(CommunicatorState& parent, Store& store,
                                                std::string_view name, const GrowOptions& options);

/// A newcomer's side: see rejoin(). `config` holds what its options say.
Result<std::shared_ptr<CommunicatorState>> rejoin(Store& store, std::string_view name, int key,
                                                  const Config& config, int device);

/// The same by the launcher's store, in which ranks are ordered by RANK. A newcomer waits there as
/// long as the launcher lets it. kUnsupported where there is none.
Result<std::shared_ptr<CommunicatorState>> grow(CommunicatorState& parent,
                                                const GrowOptions& options);
Result<std::shared_ptr<CommunicatorState>> rejoin(const Config& config, int device);

/// Tells the launcher, where it has a store, that the ranks which it has started together have met:
/// `size` is that of a job. Of fewer than all of them it says nothing.
void tell_launcher_of_meeting(const Config& config, int size);

}  // namespace unisono::detail
