// Calls on device memory and calls behind them. See communicator_state.h and device_calls.h.
#include <sched.h>

#include <algorithm>

#include "comm/communicator_state.h"
#include "comm/split.h"

namespace unisono::detail {

// The same buffers as a moment ago are what they were then: the driver is not asked.
bool CommunicatorState::needs_devices(const Call& call) const {
  if (devices_ == nullptr) return call.options.stream.has_value();
  if (devices_->has_unlaunched(call.collective)) return true;
  const bool same_buffers = host_.shared_memory().has_last_buffers_of(call);
  return !(same_buffers && !call.options.stream) && devices_->concerns(call);
}

bool CommunicatorState::concerns_devices(const Call& call) const {
  return devices_ == nullptr ? call.options.stream.has_value() : devices_->concerns(call);
}

Result<Operation*> CommunicatorState::start_on_device(RequestState& request,
                                                      const CallShape& shape) {
  if (devices_ != nullptr) return devices_->start(request, shape);
  return Status(ErrorCode::kUnsupported, std::string(name_of(request.call.collective)) +
                                             " was given a CUDA stream and rank " +
                                             std::to_string(rank()) +
                                             " has no CUDA device; `unisono info` says why");
}

FirstFailure CommunicatorState::run_with_devices(std::span<const Call> calls, Received* received) {
  std::vector<GroupedCall> grouped;
  for (const Call& call : calls) grouped.push_back({this, &call});
  return run_together(grouped, received);
}

// Behind the device calls that have not told the peers about themselves.
Status CommunicatorState::await_turn(const Call& call) {
  while (!is_in_turn(call)) {
    UNISONO_TRY(usable());
    runtime_->engine().beat();
    sched_yield();
  }
  return Status();
}

Status CommunicatorState::close_gate(RequestState& request) {
  if (!request.is_on_device()) return Status();
  const Engine::Lock lock(runtime_->engine());
  const bool is_over = request.done.load(std::memory_order_relaxed);
  return is_over ? Status() : devices_->close_gate(request);
}

bool CommunicatorState::is_in_turn(const Call& call) const {
  return devices_ == nullptr || !devices_->has_unlaunched(call.collective) ||
         concerns_devices(call);
}

void CommunicatorState::await_enqueued(RequestState& request) {
  if (request.is_on_device()) {
    runtime_->engine().wait(request.enqueued, kNever);
  } else {
    wait(request, kNever);
  }
}

// To the end of a blocking call: with a stream that is when its work is in there. The request goes
// on by itself then.
Status CommunicatorState::settle(RequestState& request, const Call& call) {
  if (call.options.stream) {
    await_enqueued(request);
  } else {
    wait(request, kNever);
  }
  if (request.failed.load(std::memory_order_relaxed)) wait(request, kNever);  // for the outcome
  Status outcome;
  if (request.done.load(std::memory_order_acquire)) outcome = request.outcome;
  request.let_go();
  return outcome;
}

// What is in streams was called before the goodbye, and is to be finished.
void CommunicatorState::drain_devices() {
  const auto is_drained = [this] {
    const Engine::Lock lock(runtime_->engine());
    return closed_ || failure_.has_cause() ||
           std::none_of(requests_.running().begin(), requests_.running().end(),
                        [](const RequestState* request) { return request->is_on_device(); });
  };
  while (!is_drained()) {
    runtime_->engine().beat();
    sched_yield();
  }
}

Status CommunicatorState::admits_direct(Rank member, std::size_t bytes) const {
  if (!runtime_->config().cuda.direct) {
    return Status(ErrorCode::kUnsupported, "UNISONO_CUDA_DIRECT is off");
  }
  const Rank to = members_.world_rank(member);
  return runtime_->engine().messenger().route(to).admits_direct(to, bytes);
}

HostGroupIds CommunicatorState::offer_groups(const HostLayout& layout) {
  HostGroupIds ids;
  if (layout.local.front() == rank()) ids.local = take_communicator_id(*runtime_);
  if (layout.across.front() == rank()) ids.across = take_communicator_id(*runtime_);
  return ids;
}

void CommunicatorState::open_groups(const HostLayout& layout, const HostGroupIds& ids) {
  groups_ = std::make_unique<HostGroups>(*this, layout, ids);
}

// They lock the engine themselves. Nobody opens any once the device calls are over.
void CommunicatorState::close_host_groups() {
  HostGroups* groups = nullptr;
  {
    const Engine::Lock lock(runtime_->engine());
    groups = groups_.get();
  }
  if (groups != nullptr) groups->close();
}

// As the last but one of a group: its stream, the library's, waits for no gate.
Result<RequestState*> CommunicatorState::begin_inner(const Call& call) {
  UNISONO_TRY(usable());
  CallShape shape;
  UNISONO_TRY(check_call(call, rank(), size(), &shape));
  RequestState& request = requests_.prepare(call);
  RequestPool::copy_counts(request);
  begins_group_ = true;
  const Result<Operation*> started = start_on_device(request, shape);
  begins_group_ = false;
  if (!started) {
    request.held = false;
    return started.error();
  }
  request.operation = *started;
  requests_.note_running(request);
  runtime_->engine().start(request);
  return &request;
}

}  // namespace unisono::detail
