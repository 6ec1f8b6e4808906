// Which ranks share a host and its processors, and where in it they run, from what every rank
// published when it joined: all ranks of a job come to the same answer.
//
// Thread rule: values; any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/place.h"
#include "rendezvous/messages/job.h"

namespace unisono {

/// The lines of Member::addresses that host_loads() and places_of() read: what the calling thread
/// may run on, where that lies, and the time that its control group grants.
std::string processor_lines();

struct HostLoad {
  int ranks = 0;
  int cpus = 1;
  int processes = 0;         ///< that the ranks are in
  int ranks_of_process = 0;  ///< in the rank's own
  bool shares_cores() const { return ranks > cpus; }
};

/// By world rank: all ranks of the job on that rank's host, in or out of a communicator, and the
/// processors that they may use together.
std::vector<HostLoad> host_loads(std::span<const Member> job);

/// By world rank. What makes no sense is not known.
std::vector<Place> places_of(std::span<const Member> job);

}  // namespace unisono
