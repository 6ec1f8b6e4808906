// Communicators of the library's own inside of one whose members have GPUs on several hosts: the
// members of this rank's host, and one member of every host. They fail with it and are closed with
// it; a failure of theirs is a failure of the call that uses them.
//
// Thread rule: the engine's lock, but for close().
#pragma once

#include <memory>
#include <vector>

#include "backend/backend_host.h"
#include "unisono/traffic.h"

namespace unisono::detail {

class CommunicatorState;

class HostGroup final : public InnerGroup {
 public:
  /// `ranks` of the communicator around.
  HostGroup(CommunicatorState& around, const std::vector<Rank>& ranks, std::uint32_t id);

  Rank rank() const override;
  Result<InnerCall> begin(const Call& call) override;
  Rank outer_rank(Rank rank) const override;
  Status outer_status(const Status& failure) const override;
  void fail(const Status& outer) override;

  CommunicatorState& state() { return *state_; }
  const CommunicatorState& state() const { return *state_; }

 private:
  CommunicatorState& around_;
  std::shared_ptr<CommunicatorState> state_;
};

class HostGroups {
 public:
  HostGroups(CommunicatorState& around, const HostLayout& layout, const HostGroupIds& ids)
      : around_(around),
        local_(around, layout.local, ids.local),
        across_(around, layout.across, ids.across) {}

  HostGroup& local() { return local_; }
  HostGroup& across() { return across_; }

  /// `cause` is in the numbering of the communicator around.
  void fail(const Status& cause);
  /// Without the lock; nothing of theirs runs. Idempotent.
  void close();
  /// What went between hosts, by peer of the communicator around. Calls are not counted.
  void add_traffic(TrafficReport* report) const;

 private:
  CommunicatorState& around_;
  HostGroup local_, across_;
};

}  // namespace unisono::detail
