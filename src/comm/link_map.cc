#include "comm/link_map.h"

#include <algorithm>

#include "comm/host_load.h"
#include "rendezvous/messages/peer_information.h"
#include "transports/verbs/world_address.h"

namespace unisono {

using algorithms::Link;

Result<LinkMap> LinkMap::make(const World& job, const std::string& transport,
                              const std::function<bool(Rank)>& shares_memory) {
  LinkMap map;
  map.self_ = job.rank;
  for (const Member& member : job.members) {
    Result<verbs::WorldAddress> address =
        verbs::parse_world_address(find_address(member.addresses, "verbs"));
    if (!address) {
      return Status(address.error().code(),
                    "rank " + std::to_string(member.rank) + ": " + address.error().message(),
                    member.rank);
    }
    const auto group = std::find(map.groups_.begin(), map.groups_.end(), address->networks);
    map.group_of_.push_back(static_cast<std::size_t>(group - map.groups_.begin()));
    if (group == map.groups_.end()) map.groups_.push_back(std::move(address->networks));
  }
  const Member& self = job.members[static_cast<std::size_t>(job.rank)];
  const Networks& own = map.groups_[map.group_of_[static_cast<std::size_t>(job.rank)]];
  for (const Member& member : job.members) {
    const Networks& theirs = map.groups_[map.group_of_[static_cast<std::size_t>(member.rank)]];
    const bool leaves_host = transport == "verbs" || !same_host(member, self);
    map.links_.push_back(transport == "loopback"                              ? Link::kLoopback
                         : transport == "tcp"                                 ? Link::kTcp
                         : transport != "verbs" && shares_memory(member.rank) ? Link::kShm
                         : !leaves_host                                       ? Link::kUnix
                         : verbs::have_common(own, theirs)                    ? Link::kVerbs
                                                                              : Link::kTcp);
  }
  return map;
}

// Whether verbs joins two ranks does not follow from either's links to a third: with a network for
// each of two groups of hosts, a rank that is in both would else hold links for verbs that to
// others are TCP, and choose another algorithm.
Link LinkMap::slowest(const std::vector<Rank>& members) const {
  Link slowest = Link::kLoopback;
  std::vector<bool> present(groups_.size());
  for (const Rank rank : members) {
    if (rank != self_) slowest = std::max(slowest, to(rank));
    present[group_of_[static_cast<std::size_t>(rank)]] = true;
  }
  if (slowest != Link::kVerbs) return slowest;
  for (std::size_t a = 0; a < groups_.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      if (present[a] && present[b] && !verbs::have_common(groups_[a], groups_[b])) {
        return Link::kTcp;
      }
    }
  }
  return slowest;
}

}  // namespace unisono
