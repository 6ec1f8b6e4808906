// What stands behind a Communicator: its members, its numbered calls, its first failure.
//
// Thread rule: as the public class; what the engine's heartbeat calls runs under the engine's lock.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/call_history.h"
#include "comm/call_check.h"
#include "comm/device_calls.h"
#include "comm/failure.h"
#include "comm/host_groups.h"
#include "comm/native_calls.h"
#include "comm/operations.h"
#include "comm/plan_cache.h"
#include "comm/request_pool.h"
#include "comm/runtime.h"
#include "native/native.h"
#include "unisono/communicator.h"

namespace unisono::detail {

/// Of calls that are ended one after the other: the first that failed, and its call where `failed`
/// is not null.
struct FirstFailure {
  Collective* failed = nullptr;
  Status status;

  void note(const Status& outcome, Collective collective) {
    if (!status.ok() || outcome.ok()) return;
    status = outcome;
    if (failed != nullptr) *failed = collective;
  }
};

class CommunicatorState final : public std::enable_shared_from_this<CommunicatorState> {
 public:
  enum class Tell { kNobody, kEveryone };

  CommunicatorState(std::shared_ptr<Runtime> runtime, std::uint32_t id, std::vector<Rank> members,
                    Rank rank, std::unique_ptr<native::Group> native);
  ~CommunicatorState();
  /// Once, before anything else; under the engine's lock.
  void enlist();

  std::uint32_t id() const { return id_; }
  Rank rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  const std::vector<Rank>& members() const { return members_; }
  /// Communicator rank of a world rank, or -1.
  Rank member_of(Rank world_rank) const;
  Runtime& runtime() { return *runtime_; }
  const std::shared_ptr<Runtime>& shared_runtime() const { return runtime_; }
  /// What an operation of this rank on device memory needs of the rest; under the engine's lock.
  CallRecord device_record(const Call& call) const;
  bool begins_group() const { return begins_group_; }
  Status launch_on_host(RequestState& request, const CallShape& shape);
  void count_plan(const RequestState& request);
  /// Graphs of the caller's hold calls of this communicator from here on: their replays are
  /// nobody's request, so the peers are watched until it fails or is closed.
  void watch_replays();
  Status launch_meeting(RequestState& request, const Call& call, std::span<const std::byte> mine,
                        std::span<std::byte> all);
  native::Group* native() const { return native_calls_.group(); }
  NativeCalls& native_calls() { return native_calls_; }
  /// Communicators of the library's own inside of this one; null before open_host_groups(). Under
  /// the engine's lock, as all that has to do with them.
  HostGroups* host_groups() { return host_groups_.get(); }
  void open_host_groups(const HostGroups::Layout& layout, const HostGroups::Ids& ids);
  /// Of a communicator inside of another: errors name the ranks of that one, and averages divide by
  /// as many.
  void set_inside(int outer_size);
  bool is_inside() const { return outer_size_ > 0; }
  /// A call of the library's own on device memory: begins at once and never holds its stream. The
  /// request is the caller's until it is done and `held` is false. Errors are the caller's to tell.
  Result<RequestState*> begin_inner(const Call& call);
  const TrafficReport& counted() const { return traffic_; }

  /// Blocking: the outcome. Throws nothing.
  Status run(const Call& call, Received* received = nullptr);
  /// Starts all, then waits for all: the first failure and, where asked for, its call and what the
  /// last receive got.
  Status run_group(std::span<const Call> calls, Collective* failed, Received* received = nullptr);
  /// A bad argument is an error here; everything later is the request's outcome.
  Result<std::shared_ptr<RequestState>> start(const Call& call);
  /// For group() of several communicators. A call that is_in_turn() begins without waiting, and
  /// settle() ends it as run() would.
  bool is_in_turn(const Call& call) const;
  Result<std::shared_ptr<RequestState>> begin(const Call& call, bool in_group = false);
  /// After all of a group have begun: streams wait for results from here on.
  Status close_gate(RequestState& request);
  Status settle(RequestState& request, const Call& call);
  bool test(RequestState& request);
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
  const CallHistory& calls() const { return calls_; }
  CallsOfRank own_calls() const { return {rank_, members_, calls_.latest()}; }
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
  algorithms::Link link() const { return link_; }
  TrafficReport traffic();
  Error error(const Status& status, Collective collective) const;

 private:
  Status usable() const;
  int averaged_ranks() const { return is_inside() ? outer_size_ : size(); }
  bool needs_devices(const Call& call) const;
  bool concerns_devices(const Call& call) const;
  Status launch_on_device(RequestState& request, const CallShape& shape);
  Status run_with_devices(std::span<const Call> calls, Collective* failed, Received* received);
  Result<std::shared_ptr<RequestState>> begin_in_turn(const Call& call, bool in_group);
  Result<algorithms::Choice> choose_meeting(const CallShape& shape) const;
  void await_enqueued(RequestState& request);
  void drain_devices();
  void close_host_groups();
  void give_back_buffers(const Status& cause);
  /// Whether a collective runs natively, and by which path.
  struct Way {
    bool native = false;
    AccessPath path = AccessPath::kAutomatic;
  };
  Way way_of(const Call& call, const CallShape& shape);
  Status run_native(const Call& call, const CallShape& shape, AccessPath path);
  std::optional<Status> run_again(const Call& call);
  std::optional<Status> watch(native::NativeCall& operation);
  RequestState& hand_over(const Call& call, std::uint64_t sequence, const CallRecord& record);
  Result<RequestState*> admit(const Call& call, const CallShape& shape);
  Status finish(RequestState& request);
  Status look_at_peers();
  Verdict verdict_of(const Status& cause) const;
  native::Arguments native_arguments(const Call& call, const compute::Reduction* reduction,
                                     const CallRecord& record, AccessPath path) const;
  Received received_by(const RequestState& request, const Call& call) const;
  Status check_received(const RequestState& request) const;
  Result<RequestState*> check_and_admit(const Call& call);
  Result<RequestState*> admit_message(const Call& call);
  Status launch_native(RequestState& request, AccessPath path);
  /// `arguments` have the record of the next collective. `counted`: in the traffic.
  void begin_native(RequestState& request, const native::Arguments& arguments, bool counted);
  Status launch_plan(RequestState& request, const Call& call, const CallShape& shape,
                     const algorithms::Choice& choice, const CallRecord& record);
  void launch_point_to_point(RequestState& request, const Call& call);
  void on_done(RequestState& request);
  void count(const RequestState& request);
  void count_send(const Call& call);
  Result<algorithms::Choice> choose(const Call& call, const CallShape& shape) const;
  std::string_view hint_for(const Call& call) const;
  CallRecord record_of(const Call& call) const;
  algorithms::SelectionRequest selection_request(Collective collective, std::size_t bytes) const;
  TimePoint deadline_of(const Call& call, TimePoint now) const;
  bool has_gone(Rank member, bool asks_native, const std::vector<bool>& peer_left) const;
  Rank first_gone(const std::vector<Rank>& waiting, bool asks_native,
                  const std::vector<bool>& peer_left) const;
  static bool misses(Rank gone, TimePoint* since);
  void fail_without(Rank gone, const std::string& what);
  void end_replays(bool failed);
  void tend_replays(const std::vector<bool>& peer_left);
  void tend_request(RequestState& request, TimePoint now, const std::vector<bool>& peer_left);
  void time_out(RequestState& request, TimePoint now, const std::vector<Rank>& waiting);
  static std::string arrival_text(const std::vector<Rank>& waiting);
  void probe_peers(const RequestState& request, const std::vector<Rank>& waiting);
  Rank last_gone(const std::vector<bool>& peer_left) const;

  const std::shared_ptr<Runtime> runtime_;
  const std::uint32_t id_;
  const std::vector<Rank> members_;
  const Rank rank_;
  TrafficReport traffic_;  // but for the last native call
  NativeCalls native_calls_;
  const algorithms::Link link_;
  const bool shared_cores_;
  int outer_size_ = 0;
  // The table's answers for this communicator, by collective, each made at its first call.
  std::array<std::vector<algorithms::NativeRange>, kCollectiveCount> native_ranges_;

  CallHistory calls_;
  std::vector<std::uint64_t> sends_;  // point-to-point messages so far, by member
  LastReduction last_reduction_;
  PlanCache plans_;
  std::unique_ptr<HostGroups> host_groups_;
  std::unique_ptr<DeviceCalls> devices_;  // null where no device memory can come
  bool begins_group_ = false;             // what begins now is not the last of its group
  RequestPool requests_;
  std::vector<Task*> group_;  // of run_group(), kept for its memory
  std::vector<bool> left_;
  bool watches_replays_ = false;
  TimePoint replays_miss_since_{};  // a member that has left
  std::vector<Rank> waiting_;       // of tend_request(), kept for its memory

  Failure failure_;
  bool closed_ = false;
};

}  // namespace unisono::detail
