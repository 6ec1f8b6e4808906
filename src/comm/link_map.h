// Which kind of link joins the ranks of a job, from what every rank published when it joined: all
// ranks come to the same answer. Values only; any thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "algorithms/selection.h"
#include "rendezvous/messages/job.h"

namespace unisono {

class LinkMap {
 public:
  LinkMap() = default;
  /// `transport` as UNISONO_TRANSPORT has it; `shares_memory` says so of a rank of this host.
  /// kRendezvous names a rank whose verbs address is of another version.
  static Result<LinkMap> make(const World& job, const std::string& transport,
                              const std::function<bool(Rank)>& shares_memory);

  /// Between this rank and that one.
  algorithms::Link to(Rank rank) const { return links_[static_cast<std::size_t>(rank)]; }
  /// The slowest between any two of these, this rank among them.
  algorithms::Link slowest(const std::vector<Rank>& members) const;

 private:
  /// What the ports of a rank can talk with. Most ranks of a job have the same.
  using Networks = std::vector<std::string>;

  Rank self_ = 0;
  std::vector<algorithms::Link> links_;
  std::vector<Networks> groups_;
  std::vector<std::size_t> group_of_;  ///< by rank: an index of groups_
};

}  // namespace unisono
