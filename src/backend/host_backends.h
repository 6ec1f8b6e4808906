// What runs a communicator's calls on host memory: a backend is selected for each.
//
// Thread rule: the engine's lock. What the accessors give, in any thread, has rules of its own.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "backend/call_selection.h"
#include "backend/message_backend.h"
#include "backend/plan_backend.h"
#include "backend/shared_memory_backend.h"
#include "backend/traffic_counter.h"

namespace unisono {

class HostBackends {
 public:
  struct Context {
    Engine& engine;
    ScratchPool& scratch;
    const Members& members;
    CallSelection::Circumstances circumstances;
    std::unique_ptr<native::Group> group;  ///< null: members do not share memory
    /// Hears of calls that differ from a peer's.
    std::function<void(const Status&)> on_disagreement;
    recorder::Recorder* recorder = nullptr;  ///< null: nothing is recorded
  };
  /// What a checked call was found to be, and to come to if it was selected for already.
  struct Checked {
    Checked() {}  // NOLINT: a constexpr one clears all of it, in every call
    explicit Checked(const CallShape& its_shape) : shape(its_shape) {}

    CallShape shape;
    /// None: it was not checked, or nothing selected.
    std::optional<Result<algorithms::Choice>> choice;
    std::optional<compute::Reduction> reduction;  ///< none: it is still to be made
    bool is_part = false;                         ///< of a longer call on device memory
  };
  explicit HostBackends(Context context);

  /// Of averages; otherwise as many as there are members.
  void set_averaged_ranks(int ranks);

  const CallHistory& calls() const { return calls_; }
  void note_split() { calls_.note_split(); }
  TrafficCounter& traffic() { return traffic_; }
  const TrafficCounter& traffic() const { return traffic_; }
  CallSelection& selection() { return selection_; }
  const CallSelection& selection() const { return selection_; }
  SharedMemoryBackend& shared_memory() { return shared_memory_; }
  const SharedMemoryBackend& shared_memory() const { return shared_memory_; }
  MessageBackend& messages() { return messages_; }
  recorder::CallRecorder& recorder() { return recorder_; }

  /// Of the next collective, if it is this one.
  CallRecord record_of(const Call& call) const;
  /// The same for a call on device memory, and for what it does on the host.
  CallRecord device_record_of(const Call& call) const;

  /// Tries a blocking collective of members that share memory before it is checked; most often it
  /// is over without a request. Sets `failure` for kRefused and kFailed. With kNotBegun it may have
  /// filled `checked`, which start() then takes.
  Tried try_run(const Call& call, Checked* checked, Status* failure);
  /// Behind kGoesOn, at once: the same call with a request.
  Operation* go_on(StartedCall& call) { return shared_memory_.go_on(call); }
  /// Starts a checked call of `call.call` with the backend selected for it; see Backend.
  Result<Operation*> start(StartedCall& call, const Checked& checked);
  /// What start() would find of a checked call, or the error that it would return if this rank were
  /// in it alone. Serves all calls that differ in their buffers alone.
  Result<Checked> check(const Call& call, const CallShape& shape);
  /// Starts the exchange of `mine`, as many bytes of every member, before a call on device memory.
  /// It has that call's record, so that ranks in other calls find out, and is not counted.
  Result<Operation*> start_metadata_exchange(StartedCall& exchange, const Call& served,
                                             std::span<const std::byte> mine,
                                             std::span<std::byte> all);

 private:
  Result<Operation*> start_collective(StartedCall& call, const CallShape& shape,
                                      Result<algorithms::Choice> choice);

  const Members& members_;
  int averaged_ranks_;
  CallHistory calls_;
  TrafficCounter traffic_;  // but for the last short call
  CallSelection selection_;
  recorder::CallRecorder recorder_;
  PlanBackend plans_;
  SharedMemoryBackend shared_memory_;
  MessageBackend messages_;
};

}  // namespace unisono
