// What stands behind a Communicator: its members, its numbered calls, its first failure.
//
// Thread rule: as the public class; what the engine's heartbeat calls runs under the engine's lock.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/host_backends.h"
#include "backend/members.h"
#include "comm/communicator_devices.h"
#include "comm/failure.h"
#include "comm/group.h"
#include "comm/job_communicator.h"
#include "comm/request_pool.h"
#include "comm/runtime.h"
#include "comm/watchdog.h"
#include "unisono/communicator.h"

namespace unisono::detail {

class CommunicatorState final : public JobCommunicator,
                                public std::enable_shared_from_this<CommunicatorState> {
 public:
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
  HostBackends& host() { return host_; }
  const HostBackends& host() const { return host_; }
  CommunicatorDevices& devices() { return devices_; }
  native::Group* native() const { return host_.shared_memory().group(); }
  /// Makes it a communicator inside of another: errors name the ranks of that one, and averages
  /// divide by as many.
  void set_inside(int outer_size);
  /// Starts a call of the library's own on device memory. It begins at once and never holds its
  /// stream. The request is the caller's until it is done and `held` is false. Errors are returned
  /// and not reported.
  Result<RequestState*> begin_inner(const Call& call);
  /// Under the lock.
  bool has_calls_on_devices() const;

  /// Runs a blocking call and returns its outcome. `received`: what a receive got. Throws nothing
  /// but std::bad_alloc.
  Status run(const Call& call, Received* received = nullptr);
  /// A bad argument is an error here; everything later is the request's outcome.
  Result<std::shared_ptr<RequestState>> start(const Call& call);
  /// Ok, or why no call can begin: close() is a cause too, where there was none before.
  Status usable() const { return failure_.has_cause() ? failure() : Status(); }
  /// For begin_together(), under the lock: checks the call, selects a backend and has it start the
  /// call, which the engine then advances. Null: a blocking call that is over already. `in_group`:
  /// see StartedCall.
  Result<RequestState*> begin(const GroupedCall& grouped, bool in_group);
  /// Waits for the end of a blocking call. With a stream that is when its work is in the stream,
  /// and the request goes on by itself then.
  Status settle(GroupedCall& grouped, Received* received);
  /// Looks at what the peers have said, after a blocking call that waited for nobody: otherwise the
  /// next call that waits would be the first to hear of it.
  Status look_at_peers();
  bool test(RequestState& request);
  /// Has `callback` run when the request is done; at once if it is.
  void on_completion(RequestState& request, CompletionCallbacks::Callback callback);
  /// False when `until` passed first.
  bool wait(RequestState& request, TimePoint until);

  /// First failure wins. Under the engine's lock.
  void fail(Status cause, Tell tell) override;
  /// It has failed, and this rank may not go on either: later calls are told that.
  void note_partition(const Status& why) { failure_.replace(why); }
  /// Any thread, without the lock.
  Status failure() const { return failure_.cause(); }
  /// As failure(), but also finds a failed member whose streams may have reported a replay as done.
  Status status();
  /// This rank's call and a peer's differ, as `seen` says. The communicator fails once the job has
  /// named the rank whose call is wrong. Under the engine's lock.
  void disagree(const Status& seen) override;
  CallsOfRank own_calls() const override {
    return {rank(), members_.world_ranks(), host_.calls().latest()};
  }
  const CallRecord* find_call(std::uint64_t sequence) const override {
    return host_.calls().find(sequence);
  }
  void abort(const std::string& reason);
  void close();
  bool closed() const { return closed_; }

  void add_waits(std::vector<RunningWait>* waits) override;
  /// Under the lock, about once a millisecond while somebody waits.
  void tend(const std::vector<bool>& peer_left) override;
  void note_left(Rank member) override;

  TrafficReport traffic();
  Error error(const Status& status, std::string_view operation) const;
  Error error(const Status& status, Collective collective) const {
    return error(status, name_of(collective));
  }

 private:
  CallSelection::Circumstances circumstances(bool shared_memory) const;
  void await_enqueued(RequestState& request);
  void give_back_buffers(const Status& cause);
  void leave_survivors();
  struct Admission {
    bool in_group = false;
    bool is_inner = false;  ///< errors are returned, not reported
  };
  Result<RequestState*> admit(const GroupedCall& grouped, const Admission& how);
  Result<RequestState*> begin_message(const GroupedCall& grouped);
  RequestState* note_begun(RequestState& request, Operation* operation);
  Status not_started(const Status& why);
  Status naming_rank(const Status& cause) const;
  std::optional<Status> try_run(GroupedCall& grouped);
  RequestState& prepare(const Call& call);
  void go_on(GroupedCall& grouped);
  FailureDecision decision_of(const Status& cause) const;
  void on_done(RequestState& request);
  bool note_outcome(RequestState& request);
  Status outcome_of(RequestState& request);

  const std::shared_ptr<Runtime> runtime_;
  const Members members_;
  HostBackends host_;
  RequestPool requests_;
  Watchdog watchdog_;
  Failure failure_;
  bool closed_ = false;
  CommunicatorDevices devices_;
};

}  // namespace unisono::detail
