#include "comm/host_groups.h"

#include <string>

#include "comm/communicator_state.h"

namespace unisono::detail {

HostGroups::HostGroups(CommunicatorState& around, const Layout& layout, const Ids& ids)
    : around_(around),
      local_(make(layout.local, ids.local)),
      across_(make(layout.across, ids.across)) {
  for (CommunicatorState* group : {local_.get(), across_.get()}) group->set_inside(around.size());
}

HostGroups::~HostGroups() = default;

// Without memory of their own that ranks share: what they say to each other is short, or leaves the
// host.
std::shared_ptr<CommunicatorState> HostGroups::make(const std::vector<Rank>& ranks,
                                                    std::uint32_t id) const {
  std::vector<Rank> members;
  Rank self = -1;
  for (const Rank rank : ranks) {
    if (rank == around_.rank()) self = static_cast<Rank>(members.size());
    members.push_back(around_.members().world_rank(rank));
  }
  auto made = std::make_shared<CommunicatorState>(around_.shared_runtime(), id, std::move(members),
                                                  self, nullptr);
  made->enlist();
  return made;
}

Rank HostGroups::outer_rank(const CommunicatorState& group, Rank rank) const {
  if (rank < 0 || rank >= group.size()) return -1;
  return around_.members().find(group.members().world_rank(rank));
}

Status HostGroups::outer_status(const CommunicatorState& group, const Status& failure) const {
  const Rank culprit = outer_rank(group, failure.rank());
  std::string words = culprit < 0 ? "" : "rank " + std::to_string(culprit) + ": ";
  words += failure.message() + " (in a step of ranks";
  for (Rank rank = 0; rank < group.size(); ++rank) {
    words += (rank == 0 ? " " : ", ") + std::to_string(outer_rank(group, rank));
  }
  return Status(failure.code(), words + ")", culprit);
}

void HostGroups::fail(const Status& cause) {
  for (CommunicatorState* group : {local_.get(), across_.get()}) {
    const Rank culprit =
        cause.rank() < 0 ? -1 : group->members().find(around_.members().world_rank(cause.rank()));
    group->fail(Status(cause.code(), cause.message(), culprit), CommunicatorState::Tell::kNobody);
  }
}

void HostGroups::close() {
  local_->close();
  across_->close();
}

void HostGroups::add_traffic(TrafficReport* report) const {
  const TrafficReport& counted = across_->counted();
  for (std::size_t c = 0; c < counted.by_collective.size(); ++c) {
    report->by_collective[c] += counted.by_collective[c];
  }
  for (Rank rank = 0; rank < across_->size(); ++rank) {
    report->by_peer[static_cast<std::size_t>(outer_rank(*across_, rank))] +=
        counted.by_peer[static_cast<std::size_t>(rank)];
  }
}

}  // namespace unisono::detail
