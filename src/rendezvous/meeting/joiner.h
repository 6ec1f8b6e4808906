// One rank's way into its job: rank 0 opens the rendezvous and starts the arbiter, the others look
// for it until the deadline; then both wait for the world table on the same kind of connection.
//
// Thread rule: the thread that joins; blocks.
#pragma once

#include <chrono>
#include <functional>

#include "base/clock.h"
#include "rendezvous/messages/job.h"
#include "rendezvous/sockets/control_stream.h"

namespace unisono::rendezvous {

/// Who comes to a rendezvous, of how many ranks.
struct Applicant {
  int size;                         ///< at least 2
  const Member& member;             ///< has passed check_member
  Status why_not;                   ///< an error: it only tells the others that it cannot take part
  std::function<Status()> go_on{};  ///< as in RendezvousPoint
  std::chrono::milliseconds silence{0};  ///< as in RendezvousPoint
};

struct Joined {
  ControlStream stream;
  World world;
};

Result<Joined> join_rendezvous(const RendezvousPoint& point, const Applicant& self,
                               TimePoint deadline);

}  // namespace unisono::rendezvous
