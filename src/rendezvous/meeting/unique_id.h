// A unique id: 128 bytes that say where the arbiter of a job can be reached, the job's id and its
// key. The process that makes one listens at once, so that ranks may come before rank 0 has joined;
// rank 0, of the same process, takes the listening sockets over.
//
// Thread rule: any thread.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "rendezvous/meeting/contact.h"
#include "rendezvous/messages/job.h"
#include "rendezvous/sockets/sockets.h"
#include "unisono/rendezvous.h"

namespace unisono::rendezvous {

/// How many ids of a process may wait for their rank 0: each holds two sockets.
inline constexpr std::size_t kWaitingIdsMax = 256;

/// Empty `interface_address`: every interface. kRendezvous or kOutOfResources.
Result<UniqueId> make_unique_id(const std::string& interface_address);

/// kInvalidArgument where `id` is none that this version can have made. The contact has a key, and
/// `has_key` is false, since it need not be published.
Result<Contact> contact_of(const UniqueId& id);

/// The sockets of the id of this job, once. kInvalidArgument where this process has not made it or
/// has taken them already.
Result<std::vector<Listener>> take_listeners(const std::string& job_id);

}  // namespace unisono::rendezvous
