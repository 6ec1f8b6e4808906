#include "comm/host_groups.h"

#include <string>

#include "comm/communicator_state.h"

namespace unisono::detail {

// Without memory of their own that ranks share: what they say to each other is short, or leaves the
// host.
HostGroup::HostGroup(CommunicatorState& around, const std::vector<Rank>& ranks, std::uint32_t id)
    : around_(around) {
  std::vector<Rank> members;
  Rank self = -1;
  for (const Rank rank : ranks) {
    if (rank == around.rank()) self = static_cast<Rank>(members.size());
    members.push_back(around.members().world_rank(rank));
  }
  state_ = std::make_shared<CommunicatorState>(around.shared_runtime(), id, std::move(members),
                                               self, nullptr);
  state_->enlist();
  state_->set_inside(around.size());
}

Rank HostGroup::rank() const { return state_->rank(); }

Result<InnerCall> HostGroup::begin(const Call& call) {
  const Result<RequestState*> request = state_->begin_inner(call);
  if (!request) return outer_status(request.error());
  return InnerCall(**request);
}

Rank HostGroup::outer_rank(Rank rank) const {
  if (rank < 0 || rank >= state_->size()) return -1;
  return around_.members().find(state_->members().world_rank(rank));
}

Status HostGroup::outer_status(const Status& failure) const {
  const Rank failed_rank = outer_rank(failure.rank());
  std::string words = failed_rank < 0 ? "" : "rank " + std::to_string(failed_rank) + ": ";
  words += failure.message() + " (in a step of ranks";
  for (Rank rank = 0; rank < state_->size(); ++rank) {
    words += (rank == 0 ? " " : ", ") + std::to_string(outer_rank(rank));
  }
  return Status(failure.code(), words + ")", failed_rank);
}

void HostGroup::fail(const Status& outer) {
  const Rank world = outer.rank() < 0 ? -1 : around_.members().world_rank(outer.rank());
  state_->fail(Status(outer.code(), outer.message(), state_->members().find(world)),
               CommunicatorState::Tell::kNobody);
}

void HostGroups::fail(const Status& cause) {
  local_.fail(cause);
  across_.fail(cause);
}

void HostGroups::close() {
  local_.state().close();
  across_.state().close();
}

void HostGroups::add_traffic(TrafficReport* report) const {
  const TrafficReport& counted = across_.state().host().traffic().report();
  for (std::size_t c = 0; c < counted.by_collective.size(); ++c) {
    report->by_collective[c] += counted.by_collective[c];
  }
  for (Rank rank = 0; rank < across_.state().size(); ++rank) {
    report->by_peer[static_cast<std::size_t>(across_.outer_rank(rank))] +=
        counted.by_peer[static_cast<std::size_t>(rank)];
  }
}

}  // namespace unisono::detail
