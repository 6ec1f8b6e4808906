// What stands behind a Communicator: its members, its numbered calls, its first failure.
//
// Thread rule: as the public class; what the engine's heartbeat calls runs under the engine's lock.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/host_backends.h"
#include "backend/members.h"
#include "comm/failure.h"
#include "comm/group.h"
#include "comm/host_groups.h"
#include "comm/request_pool.h"
#include "comm/runtime.h"
#include "comm/watchdog.h"
#include "cuda/collectives/device_calls.h"
#include "unisono/communicator.h"

namespace unisono::detail {

class CommunicatorState final : public BackendHost,
                                public std::enable_shared_from_this<CommunicatorState> {
 public:
  enum class Tell { kNobody, kEveryone };

  CommunicatorState(std::shared_ptr<Runtime> runtime, std::uint32_t id, std::vector<Rank> members,
                    Rank rank, std::unique_ptr<native::Group> native);
  ~CommunicatorState() override;
  /// Once, before anything else; under the engine's lock.
  void enlist();

  const Members& members() const override { return members_; }
  Rank rank() const { return members_.self(); }
  int size() const { return members_.size(); }
  Runtime& runtime() { return *runtime_; }
  const std::shared_ptr<Runtime>& shared_runtime() const { return runtime_; }
  HostBackends& host() override { return host_; }
  native::Group* native() const { return host_.shared_memory().group(); }
  /// Of a communicator inside of another: errors name the ranks of that one, and averages divide by
  /// as many.
  void set_inside(int outer_size);
  /// A call of the library's own on device memory: begins at once and never holds its stream. The
  /// request is the caller's until it is done and `held` is false. Errors are the caller's to tell.
  Result<RequestState*> begin_inner(const Call& call);
  const TrafficReport& counted() const { return host_.traffic().report(); }

  // BackendHost
  const World& world() const override { return runtime_->world(); }
  int ranks_in_process() const override { return Runtime::open(); }
  bool is_gone(Rank world_rank) const override { return runtime_->is_gone(world_rank); }
  bool is_inside() const override { return outer_size_ > 0; }
  bool begins_group() const override { return begins_group_; }
  Status admits_direct(Rank member, std::size_t bytes) const override;
  void watch_replays() override;
  InnerGroup* local_group() override { return groups_ == nullptr ? nullptr : &groups_->local(); }
  InnerGroup* across_group() override { return groups_ == nullptr ? nullptr : &groups_->across(); }
  HostGroupIds offer_groups(const HostLayout& layout) override;
  void open_groups(const HostLayout& layout, const HostGroupIds& ids) override;

  /// Blocking: the outcome. Throws nothing.
  Status run(const Call& call, Received* received = nullptr);
  /// Starts all, then waits for all; where asked for, what the last receive got.
  FirstFailure run_group(std::span<const Call> calls, Received* received = nullptr);
  /// A bad argument is an error here; everything later is the request's outcome.
  Result<std::shared_ptr<RequestState>> start(const Call& call);
  /// For run_together(). A call that is_in_turn() begins without waiting, and settle() ends it as
  /// run() would.
  Status usable() const;
  bool is_in_turn(const Call& call) const;
  Result<std::shared_ptr<RequestState>> begin(const Call& call, bool in_group = false);
  /// After all of a group have begun: streams wait for results from here on.
  Status close_gate(RequestState& request);
  Status settle(RequestState& request, const Call& call);
  Received received_by(const RequestState& request, const Call& call) const;
  bool test(RequestState& request);
  /// At once where the request is done.
  void on_completion(RequestState& request, CompletionCallbacks::Callback callback);
  /// False when `until` passed first.
  bool wait(RequestState& request, TimePoint until);

  /// First failure wins. Under the engine's lock.
  void fail(Status cause, Tell tell);
  /// Any thread, without the lock.
  Status failure() const { return failure_.cause(); }
  /// The same, as the public class gives it: whoever finds a replay over hears whether it is right.
  Status status();
  /// The calls of this rank and a peer differ, as `seen` says: a failure, once the job has said
  /// whose is the odd one. Under the engine's lock.
  void disagree(const Status& seen);
  const CallHistory& calls() const { return host_.calls(); }
  CallsOfRank own_calls() const { return {rank(), members_.world_ranks(), calls().latest()}; }
  void abort(const std::string& reason);
  void close();
  bool closed() const { return closed_; }

  /// Under the lock, about once a millisecond while somebody waits.
  void tend(const std::vector<bool>& peer_left);
  void note_left(Rank member);

  std::string explain(Collective collective, std::size_t bytes) const;
  /// What a call on host memory runs whose order and operator are free.
  Result<algorithms::Choice> choose_for(Collective collective, std::size_t bytes,
                                        std::string_view hint) const;
  TrafficReport traffic();
  Error error(const Status& status, Collective collective) const;

 private:
  CallSelection::Circumstances circumstances(bool shared_memory) const;
  bool needs_devices(const Call& call) const;
  bool concerns_devices(const Call& call) const;
  Result<Operation*> start_on_device(RequestState& request, const CallShape& shape);
  FirstFailure run_with_devices(std::span<const Call> calls, Received* received);
  Status await_turn(const Call& call);
  void await_enqueued(RequestState& request);
  void drain_devices();
  void close_host_groups();
  void give_back_buffers(const Status& cause);
  std::optional<Status> run_again(const Call& call);
  Status tell(const Status& outcome);
  RequestState& go_on(const Call& call, const SharedMemoryBackend::ShortCall& short_call);
  using Selected = std::optional<Result<algorithms::Choice>>;
  Result<RequestState*> admit(const Call& call, const CallShape& shape, const Selected& selected);
  Status finish(RequestState& request);
  Status look_at_peers();
  FailureDecision decision_of(const Status& cause) const;
  Result<RequestState*> check_and_admit(const Call& call);
  Result<RequestState*> admit_message(const Call& call);
  void on_done(RequestState& request);
  Status outcome_of(RequestState& request);
  void end_replays(bool failed);

  const std::shared_ptr<Runtime> runtime_;
  const Members members_;
  int outer_size_ = 0;
  HostBackends host_;
  std::unique_ptr<HostGroups> groups_;    // null before open_groups()
  std::unique_ptr<DeviceCalls> devices_;  // null where no device memory can come
  bool begins_group_ = false;             // what begins now is not the last of its group
  RequestPool requests_;
  std::vector<Task*> group_;  // of run_group(), kept for its memory
  Watchdog watchdog_;
  bool watches_replays_ = false;
  Failure failure_;
  bool closed_ = false;
};

}  // namespace unisono::detail
