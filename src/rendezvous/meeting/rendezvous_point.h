// Turns a rendezvous URL and the variables of torchrun or `unisono run` into a RendezvousPoint.
// Pure apart from the user's id, which goes into the name of a single-host rendezvous.
//
// Thread rule: any thread.
#pragma once

#include <string_view>

#include "config/launcher.h"
#include "rendezvous/messages/job.h"
#include "unisono/rendezvous.h"

namespace unisono {

/// `url` is one of
///   env://              what RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT say; alone without them
///   tcp://host:port     rank 0 listens there; needs a job key
///   file:///path        rank 0 writes a file there, all ranks see it
///   alone://            a world of one rank
/// `port` is UNISONO_PORT (0: unset) and `job_key` the text of UNISONO_JOB_KEY (empty: unset).
/// kInvalidArgument or kAuthentication name the variable or URL part, its value and what is
/// accepted.
Result<RendezvousPoint> rendezvous_point_from_url(std::string_view url,
                                                  const LauncherVariables& launcher, int port,
                                                  std::string_view job_key);

/// A rendezvous at the user's `store`, which outlives it. Errors as above, about the key.
Result<RendezvousPoint> rendezvous_point_at_store(Store* store, const LauncherVariables& launcher,
                                                  std::string_view job_key);

/// A rendezvous at the sockets of `id`. kInvalidArgument where it is none.
Result<RendezvousPoint> rendezvous_point_at_id(const UniqueId& id);

}  // namespace unisono
