// What stands behind a Communicator: its members, its numbered calls, its first failure.
//
// Thread rule: as the public class; what the engine's heartbeat calls runs under the engine's lock.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator_devices.h"
#include "comm/group.h"
#include "comm/runtime.h"
#include "comm/watched_communicator.h"
#include "unisono/communicator.h"

namespace unisono::detail {

class CommunicatorState final : public WatchedCommunicator,
                                public std::enable_shared_from_this<CommunicatorState> {
 public:
  CommunicatorState(std::shared_ptr<Runtime> runtime, std::uint32_t id, std::vector<Rank> members,
                    Rank rank, std::unique_ptr<native::Group> native);
  ~CommunicatorState() override;
  /// Once, before anything else; under the engine's lock.
  void enlist();

  Runtime& runtime() { return *runtime_; }
  const std::shared_ptr<Runtime>& shared_runtime() const { return runtime_; }
  CommunicatorDevices& devices() { return devices_; }
  /// Makes it a communicator inside of another: errors name the ranks of that one, and averages
  /// divide by as many.
  void set_inside(int outer_size);
  /// Starts a call of the library's own on device memory. It begins at once and never holds its
  /// stream. The request is the caller's until it is done and `held` is false. Errors are returned
  /// and not reported.
  Result<RequestState*> begin_inner(const Call& call);
  /// Under the lock.
  bool has_calls_on_devices() const;

  /// Runs a blocking call and returns its outcome. Throws nothing but std::bad_alloc. A callback
  /// may drop this communicator meanwhile.
  FirstFailure run(const Call& call);
  /// A bad argument is an error here; everything later is the outcome of the request. As run().
  FirstFailure start(const Call& call, std::shared_ptr<RequestState>* request);
  /// For begin_together(), under the lock: checks the call, selects a backend and has it start the
  /// call, which the engine then advances. Null: a blocking call that is over already. `in_group`:
  /// see StartedCall.
  Result<RequestState*> begin(const GroupedCall& grouped, bool in_group);
  /// Waits for the end of a blocking call. With a stream that is when its work is in the stream,
  /// and the request goes on by itself then.
  Status settle(GroupedCall& grouped, Received* received);
  /// An asynchronous call goes on by itself, once it is in its stream.
  void let_run(RequestState& request);
  /// Under the lock: std::bad_alloc has ended the call, which lends nothing any more.
  void give_up(GroupedCall& grouped);
  /// Looks at what the peers have said, after a blocking call that waited for nobody: otherwise the
  /// next call that waits would be the first to hear of it.
  Status look_at_peers();
  bool test(RequestState& request);
  /// Has `callback` run when the request is done; at once if it is.
  void on_completion(RequestState& request, CompletionCallbacks::Callback callback);
  /// False when `until` passed first.
  bool wait(RequestState& request, TimePoint until);

  /// As failure(), but also finds a failed member whose streams may have reported a replay as done.
  Status status();
  void abort(const std::string& reason, Rank failed_rank);
  /// Where it throws it is not closed.
  void close();
  /// As Communicator::parent_failed_in(). Set before others have it.
  FailedIn parent_failed_in() const { return parent_failed_in_; }
  void set_parent_failed_in(FailedIn place) { parent_failed_in_ = place; }
  /// It stays as it is until the process exits. Takes no memory.
  void leak() { itself_ = shared_from_this(); }

  void add_waits(std::vector<rendezvous::WaitMessage>* waits) override;
  /// Under the lock, about once a millisecond while somebody waits.
  void tend(const std::vector<bool>& peer_left) override;

  TrafficReport traffic();
  Error error(const Status& status, std::string_view operation) const;
  Error error(const Status& status, Collective collective) const {
    return error(status, name_of(collective));
  }

 private:
  // WatchedCommunicator
  TimePoint now() const override { return Clock::now(); }
  void on_failing(const Status& cause) override;
  void on_closing() override;
  void on_over(RequestState& request) override;

  void await_enqueued(RequestState& request);
  struct Admission {
    bool in_group = false;
    bool is_inner = false;  ///< errors are returned, not reported
  };
  Result<RequestState*> admit(const GroupedCall& grouped, const Admission& how);
  Result<RequestState*> begin_message(const GroupedCall& grouped);
  bool try_run(GroupedCall& grouped, FirstFailure* first);
  bool try_on_host(GroupedCall& grouped, FirstFailure* first);
  void go_on(GroupedCall& grouped);

  const std::shared_ptr<Runtime> runtime_;
  CommunicatorDevices devices_;
  FailedIn parent_failed_in_;
  std::shared_ptr<CommunicatorState> itself_;  // once it is leaked
};

}  // namespace unisono::detail
