// One call as the backend that runs it has it: what was asked for, and the operations that it may
// come to, kept for their memory.
//
// Thread rule: the engine's lock, but for what is atomic.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "algorithms/selection.h"
#include "backend/call_check.h"
#include "backend/message_operation.h"
#include "backend/plan_cache.h"
#include "backend/shared_memory_operation.h"
#include "base/call_record.h"
#include "compute/compute.h"
#include "engine/execution.h"
#include "recorder/recorder.h"
#include "unisono/communicator.h"

namespace unisono {

class Backend;

struct StartedCall {
  StartedCall() = default;
  StartedCall(const StartedCall&) = delete;
  /// Of `what`, with nothing of the call before. The choice, the record, the sequence and the
  /// operations are the backend's, which may have begun already (MessageBackend::try_run()).
  void reset(const Call& what) {
    call = what;
    recorded = 0;
    is_counted = true;
    reduction.reset();
    plan = nullptr;
    only_sends = false;
    is_numbered = true;
    on_host = nullptr;
    enqueued.store(false, std::memory_order_relaxed);
    failed.store(false, std::memory_order_relaxed);
    concerns_call_alone = false;
    in_group = false;
    is_asynchronous = false;
  }
  /// The call that the peers take part in: this one, or the one that a call on device memory makes
  /// on the host.
  const StartedCall& at_peers() const { return on_host == nullptr ? *this : *on_host; }
  bool is_on_device() const { return on_host != nullptr; }
  /// It, for the recorder, once its backend has started it.
  recorder::Operation operation_for_record() const {
    recorder::Operation operation{.record = record, .sequence = sequence, .peer = record.root};
    if (is_on_device()) {
      operation.record = message_record(call);
      operation.record.root = operation.peer = is_rooted(call.collective) ? call.root : -1;
      operation.sequence = on_host->sequence;
      operation.is_numbered = on_host->is_numbered;
    }
    if (is_point_to_point(call.collective)) {
      operation.sequence = 0;
      operation.peer = call.peer;
      operation.tag = call.tag;
    }
    operation.is_asynchronous = is_asynchronous;
    return operation;
  }

  Call call;
  Backend* backend = nullptr;  ///< which started it, and ends it
  bool is_counted = true;      ///< in the traffic
  algorithms::Choice choice;
  std::optional<compute::Reduction> reduction;
  CallRecord record;
  std::uint64_t sequence = 0;
  /// Of what a call on device memory does on the host: the number of the first such thing, which is
  /// that of the call wherever it is then. Stays with reset().
  std::optional<std::uint64_t> first_sequence;
  std::uint64_t recorded = 0;  ///< its entry in the record; 0: none
  bool is_numbered = true;     ///< `sequence` is of something that the peers take part in now
  bool only_sends = false;     ///< no peer's message reaches it: it hears of no failure by itself
  PlanCache::Entry* plan = nullptr;  ///< in use
  std::unique_ptr<Execution> execution;
  SharedMemoryOperation shared_memory;
  MessageOperation message;

  // Of calls on device memory.
  std::unique_ptr<Operation> device;     ///< made when first needed
  const StartedCall* on_host = nullptr;  ///< in `device`
  std::atomic<bool> enqueued = false;    ///< the work is in the caller's stream, or over
  std::atomic<bool> failed = false;      ///< before it was enqueued; read after `enqueued`
  bool concerns_call_alone = false;      ///< a failure that all ranks found in the call
  bool is_asynchronous = false;          ///< who began it need not wait
  bool in_group = false;                 ///< others of its group follow, and then close_gate()
};

}  // namespace unisono
