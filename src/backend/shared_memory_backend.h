// Collectives of members that share memory: the group that runs them, the operations that wait for
// their turn in it, and the short ways of a blocking call.
//
// Thread rule: the engine's lock, but for is_again() and has_last_buffers_of(): the thread that
// makes the blocking calls.
#pragma once

#include <functional>
#include <memory>
#include <optional>
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

  /// A blocking call that was begun without a request. Without an outcome a request goes on with
  /// it.
  struct ShortCall {
    std::optional<Status> outcome;
    CallRecord record;
    std::uint64_t sequence = 0;
    native::NativeCall* running = nullptr;
  };
  /// Nothing runs.
  bool is_idle() const { return queue_.empty(); }
  /// Whether `call` is the last one again, with buffers that the same check would find right.
  bool is_again(const Call& call) const { return last_.is_again(call); }
  bool has_last_buffers_of(const Call& call) const { return last_.has_buffers_of(call); }
  /// A small call that is_again(): nothing is checked or worked out anew. None: not any more.
  std::optional<ShortCall> try_again(const Call& call);
  /// A checked call while it is idle: no request, no queue, no clock while the peers are quick.
  Result<ShortCall> run(const Call& call, const CallShape& shape, const CallRecord& record,
                        AccessPath path);
  /// `short_call` has no outcome; `call` is the same.
  Operation* go_on(StartedCall& call, const ShortCall& short_call);
  /// Into the traffic, before the group starts anything else: only then is it counted.
  void count_last();

  // What operations need. They run one after the other, in the order in which they were made.
  void line_up(SharedMemoryOperation& operation) { queue_.push_back(&operation); }
  void leave(const SharedMemoryOperation& operation) { std::erase(queue_, &operation); }
  const SharedMemoryOperation* first() const { return queue_.empty() ? nullptr : queue_.front(); }
  native::NativeCall& start_native(const native::Arguments& arguments);
  void count(const native::NativeCall& over, Collective collective) {
    over.count(collective, 1, &context_.traffic.report());
  }
  void disagree(const Status& seen) { context_.on_disagreement(seen); }

 private:
  std::optional<Status> watch(native::NativeCall& running);
  void remember(const Call& call, const CallShape& shape, const CallRecord& record);

  std::unique_ptr<native::Group> group_;
  Context context_;
  LastCall last_;
  LastReduction last_reduction_;
  std::vector<SharedMemoryOperation*> queue_;
};

}  // namespace unisono
