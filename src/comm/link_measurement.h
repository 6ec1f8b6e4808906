// What the links between the hosts of a job do, measured by one rank of each host when the ranks
// have met, and the same on all ranks afterwards: algorithms and chunks follow from it.
#pragma once

#include <span>
#include <vector>

#include "algorithms/cost_model.h"
#include "base/clock.h"
#include "base/result.h"
#include "rendezvous/messages/job.h"

namespace unisono::detail {

class CommunicatorState;

/// The lowest rank of every host, in ascending order.
std::vector<Rank> first_of_hosts(std::span<const Member> job);

/// Collective over `all`, a communicator of all ranks that nobody uses besides; `hosts` are
/// first_of_hosts(), two at least. Messages go around these, all at once: a few short ones, then
/// longer ones until one moves for a quarter of a millisecond: in all some 10 ms at 1 Gbit/s.
Result<algorithms::LinkFacts> measure_links(CommunicatorState& all, const std::vector<Rank>& hosts,
                                            TimePoint deadline);

}  // namespace unisono::detail
