// What a communicator has for calls on device memory, and what those calls ask of it. It owns the
// rank's device backend, if the rank has a device, and the sub-communicators that calls between
// hosts are made of; it knows whether graphs of the caller's hold calls.
//
// Thread rule: the engine's lock, but for what says otherwise.
#pragma once

#include <memory>
#include <vector>

#include "backend/backend_host.h"
#include "backend/request_state.h"
#include "comm/host_groups.h"
#include "cuda/collectives/device_calls.h"

namespace unisono::detail {

class CommunicatorState;

class CommunicatorDevices final : public BackendHost {
 public:
  explicit CommunicatorDevices(CommunicatorState& around) : around_(around) {}
  /// Without the lock, when nothing runs any more.
  ~CommunicatorDevices() override;

  /// Once, before anything else.
  void open();
  /// The communicator is inside of another one.
  void set_inside() { is_inside_ = true; }
  bool exist() const { return calls_ != nullptr; }

  // The thread that uses the communicator, without the lock.
  /// The call is one on device memory. Opens the rank's device where it is the first.
  bool concerns(const Call& call) const {
    return exist() ? has_device_memory(call) : call.options.stream.has_value();
  }
  /// The call may begin now: a call on host memory comes behind device calls that have not told the
  /// peers about themselves.
  bool is_in_turn(const Call& call, bool on_device) const {
    return !exist() || on_device || !calls_->has_unlaunched(call.collective);
  }
  /// After all of a group have begun: streams wait for results from here on.
  Status close_gate(RequestState& request);
  /// Finishes what is in streams, because it was called before the goodbye.
  void drain();
  void close_groups();
  /// See DeviceCalls. Any thread.
  Status members_failure() const { return exist() ? calls_->members_failure() : Status(); }

  /// As Backend::start().
  Result<Operation*> start(RequestState& request, const CallShape& shape);
  /// The communicator has failed.
  void fail(const Status& cause);
  /// Ends all replays, those launched later too. `failed`: because the communicator has failed.
  void end_replays(bool failed);
  /// Null where graphs hold no calls of this communicator.
  const DeviceCalls* replayed() const { return watches_replays_ ? calls_.get() : nullptr; }
  void add_traffic(TrafficReport* report) const;

  // BackendHost
  const Members& members() const override;
  const World& world() const override;
  int ranks_in_process() const override;
  bool is_gone(Rank world_rank) const override;
  bool is_inside() const override { return is_inside_; }
  HostBackends& host() override;
  Status admits_direct(Rank member, std::size_t bytes) const override;
  void watch_replays() override;
  InnerGroup* local_group() override { return groups_ == nullptr ? nullptr : &groups_->local(); }
  InnerGroup* across_group() override { return groups_ == nullptr ? nullptr : &groups_->across(); }
  HostGroupIds offer_groups(const HostLayout& layout) override;
  void open_groups(const HostLayout& layout, const HostGroupIds& ids) override;

 private:
  Engine& engine() const;
  bool has_device_memory(const Call& call) const;

  CommunicatorState& around_;
  bool is_inside_ = false;
  std::unique_ptr<HostGroups> groups_;  // null before open_groups()
  std::unique_ptr<DeviceCalls> calls_;  // null where no device memory can come
  bool watches_replays_ = false;
};

}  // namespace unisono::detail
