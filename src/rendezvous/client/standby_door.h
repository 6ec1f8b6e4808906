// The listening sockets of a rank that may become a standby (standby.h).
//
// Thread rule: any thread.
#pragma once

#include <vector>

#include "rendezvous/messages/job.h"
#include "rendezvous/sockets/sockets.h"

namespace unisono::rendezvous {

/// The listening sockets of `self` where it is a standby, noted in its addresses; none where ranks
/// are threads of one process, which ends for all of them at once. A standby that cannot listen is
/// none.
std::vector<Listener> open_standby(const RendezvousPoint& point, int size, Member* self);

}  // namespace unisono::rendezvous
