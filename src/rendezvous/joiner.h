// One rank's way into its job: rank 0 opens the rendezvous and starts the arbiter, the others look
// for it until the deadline; then both wait for the world table on the same kind of connection.
//
// Thread rule: the thread that joins; blocks.
#pragma once

#include "base/clock.h"
#include "rendezvous/arbiter.h"
#include "rendezvous/control_stream.h"

namespace unisono::rendezvous {

struct Joined {
  ControlStream stream;
  World world;
};

/// `size` is at least 2 and `self` has passed check_member.
Result<Joined> join_rendezvous(const RendezvousPoint& point, int size, const Member& self,
                               TimePoint deadline);

}  // namespace unisono::rendezvous
