// Starts arbiters and ends them with the process. Each job that has its rank 0 in this process has
// one: a thread that outlives rank 0's leave() for as long as other ranks are connected, and that
// says farewell to them when the process exits. So has one whose standby here was asked to take
// over.
//
// Thread rule: any thread.
#pragma once

#include <cstdint>

#include "rendezvous/arbiter/arbiter_loop.h"

namespace unisono::rendezvous {

/// Returns rank 0's end of its connection to the new arbiter.
Result<GuardedFd> start_arbiter(ArbiterOptions options);

/// Means one arbiter of this process, and no other once that has ended; 0: none.
using ArbiterNumber = std::uint64_t;
/// For a standby (`options.members`), which waits for ranks to come to it.
Result<ArbiterNumber> start_standby(ArbiterOptions options);
/// Ends it unless it has taken over; then it goes on as the first arbiter does. `left`: its rank
/// has left the job.
void end_standby(ArbiterNumber standby, bool left);
/// What must be there before a thread may start arbiters that lives until the process exits.
void prepare_arbiters();

/// Says farewell for every arbiter of this process, which is about to end without running its
/// static destructors.
void end_arbiters();

/// Ends the arbiters of this process whose rendezvous failed and that linger for late ranks, so
/// that the next job can listen at the same place: a name, in `store` where that is not null.
void end_failed_arbiters(const Store* store, const std::string& rendezvous);

/// Ends the arbiters of this process that listened at this name and whose ranks are all gone: the
/// process may fork next, and what threads hold then is lost to the child.
void end_arbiters_of(const std::string& rendezvous);

}  // namespace unisono::rendezvous
