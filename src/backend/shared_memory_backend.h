// Collectives of members that share memory: the group that runs them, the operations that wait for
// their turn in it, and the short ways of a blocking call.
//
// Thread rule: the engine's lock, but for group() and has_last_buffers_of(): the thread that uses
// the communicator.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/last_call.h"
#include "backend/members.h"
#include "backend/traffic_counter.h"
#include "base/call_history.h"
#include "engine/engine.h"
#include "native/native.h"

namespace unisono {

class SharedMemoryBackend final : public Backend {
 public:
  /// What the communicator shares with its backends, which outlives them.
  struct Context {
    Engine& engine;
    CallHistory& calls;
    TrafficCounter& traffic;
    recorder::CallRecorder& recorder;
    /// Hears of calls that differ from a peer's.
    std::function<void(const Status&)> on_disagreement;
  };
  /// `group` may be null: members do not share memory, and nothing is to be started.
  SharedMemoryBackend(std::unique_ptr<native::Group> group, Context context, int averaged_ranks)
      : group_(std::move(group)), context_(std::move(context)), last_reduction_(averaged_ranks) {}

  native::Group* group() const { return group_.get(); }
  void set_averaged_ranks(int ranks) { last_reduction_.set_ranks(ranks); }
  void close() { group_.reset(); }

  Result<Operation*> start(StartedCall& call, const CallShape& shape) override;
  /// Operations count by themselves.
  void end(StartedCall&, bool) override {}

  /// Nothing runs.
  bool is_idle() const { return queue_.empty(); }
  /// Some member's failure has ended the group, though this rank may not have heard of it. One that
  /// has left has given its part to calls that it ended before.
  bool has_failed() const {
    if (group_ == nullptr) return false;
    const ErrorCode raised = group_->raised(nullptr);
    return raised != ErrorCode::kOk && raised != ErrorCode::kRankLeft;
  }
  /// Whether the last blocking call had these buffers, on the host.
  bool has_last_buffers_of(const Call& call) const { return last_.has_buffers_of(call); }
  /// Runs the last blocking call again, on its buffers or on others that its check would accept,
  /// without checking or working anything out. Sets `failure` for kFailed.
  Tried try_again(const Call& call, Status* failure);
  /// A checked call while it is idle: no request, no queue, no clock while the peers are quick.
  /// Never kNotBegun. `failure` is set for kRefused and kFailed.
  Tried try_run(const Call& call, const CallShape& shape, Order order, const CallRecord& record,
                AccessPath path, Status* failure);
  /// Behind kGoesOn, at once: the same call with a request.
  Operation* go_on(StartedCall& call);
  /// The number of the short call that runs, if one does.
  std::optional<std::uint64_t> running_short_call() const {
    if (!short_call_.is_running) return std::nullopt;
    return short_call_.sequence;
  }
  /// Adds the last short call to the traffic, before the group starts anything else: afterwards it
  /// could not be counted any more.
  void count_last();

  // What operations need. They run one after the other, in the order in which they were made.
  void line_up(SharedMemoryOperation& operation) { queue_.push_back(&operation); }
  void leave(const SharedMemoryOperation& operation) { std::erase(queue_, &operation); }
  const SharedMemoryOperation* first() const { return queue_.empty() ? nullptr : queue_.front(); }
  native::NativeCall& start_native(const StartedCall& call);
  void count(const native::NativeCall& over, Collective collective) {
    over.count(collective, 1, &context_.traffic.report());
  }
  void disagree(const Status& seen) { context_.on_disagreement(seen); }

 private:
  /// What was begun without a request, until it is over or goes on with one.
  struct ShortCall {
    CallRecord record;
    std::uint64_t sequence = 0;
    native::NativeCall* running = nullptr;
    bool is_running = false;  // from when it has its number, whether it could be started or not
  };
  Tried watch(native::NativeCall& running, Status* failure);
  Tried watch_recorded(Status* failure);
  void remember(const Call& call, const CallShape& shape, const CallRecord& record);

  std::unique_ptr<native::Group> group_;
  Context context_;
  LastCall last_;
  LastReduction last_reduction_;
  ShortCall short_call_;
  std::vector<SharedMemoryOperation*> queue_;
};

}  // namespace unisono
