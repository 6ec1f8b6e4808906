// Calls on device memory and calls behind them. See communicator_state.h and device_calls.h.
#include <sched.h>

#include <algorithm>

#include "comm/communicator_state.h"

namespace unisono::detail {

// The same buffers as a moment ago are what they were then: the driver is not asked.
bool CommunicatorState::needs_devices(const Call& call) const {
  if (devices_ == nullptr) return call.options.stream.has_value();
  if (devices_->has_unlaunched(call.collective)) return true;
  const bool same_buffers = native_calls_.last().has_buffers_of(call);
  return !(same_buffers && !call.options.stream) && devices_->concerns(call);
}

bool CommunicatorState::concerns_devices(const Call& call) const {
  return devices_ == nullptr ? call.options.stream.has_value() : devices_->concerns(call);
}

Status CommunicatorState::launch_on_device(RequestState& request, const CallShape& shape) {
  request.on_device = true;
  if (devices_ != nullptr) return devices_->launch(request, shape);
  return Status(ErrorCode::kUnsupported, std::string(name_of(request.call.collective)) +
                                             " was given a CUDA stream and rank " +
                                             std::to_string(rank_) +
                                             " has no CUDA device; `unisono info` says why");
}

Status CommunicatorState::run_with_devices(std::span<const Call> calls, Collective* failed,
                                           Received* received) {
  FirstFailure first{failed, {}};
  std::vector<std::shared_ptr<RequestState>> requests;
  for (const Call& call : calls) {
    Result<std::shared_ptr<RequestState>> request = begin_in_turn(call, calls.size() > 1);
    first.note(request.status(), call.collective);
    if (!request) break;
    requests.push_back(std::move(*request));
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    first.note(close_gate(*requests[i]), calls[i].collective);
  }
  runtime_->engine().wake_progress_thread();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    first.note(settle(*requests[i], calls[i]), calls[i].collective);
    if (received != nullptr && !calls[i].options.stream) {
      *received = received_by(*requests[i], calls[i]);
    }
  }
  runtime_->engine().flush();
  return first.status;
}

// Behind the device calls that have not told the peers about themselves. Those wait for this
// rank's own device, or for members that make the same calls in the same order.
Result<std::shared_ptr<RequestState>> CommunicatorState::begin_in_turn(const Call& call,
                                                                       bool in_group) {
  while (!is_in_turn(call)) {
    UNISONO_TRY(usable());
    runtime_->engine().beat();
    sched_yield();
  }
  return begin(call, in_group);
}

Status CommunicatorState::close_gate(RequestState& request) {
  if (!request.on_device) return Status();
  const Engine::Lock lock(runtime_->engine());
  const bool is_over = request.done.load(std::memory_order_relaxed);
  return is_over ? Status() : devices_->close_gate(request);
}

bool CommunicatorState::is_in_turn(const Call& call) const {
  return devices_ == nullptr || !devices_->has_unlaunched(call.collective) ||
         concerns_devices(call);
}

void CommunicatorState::await_enqueued(RequestState& request) {
  if (request.on_device) {
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
  Status outcome;
  if (request.done.load(std::memory_order_acquire)) outcome = request.outcome;
  request.communicator.reset();
  return outcome;
}

// What is in streams was called before the goodbye, and is to be finished.
void CommunicatorState::drain_devices() {
  const auto is_drained = [this] {
    const Engine::Lock lock(runtime_->engine());
    return closed_ || failure_.has_cause() ||
           std::none_of(requests_.running().begin(), requests_.running().end(),
                        [](const RequestState* request) { return request->on_device; });
  };
  while (!is_drained()) {
    runtime_->engine().beat();
    sched_yield();
  }
}

CallRecord CommunicatorState::device_record(const Call& call) const {
  return make_record(call, calls_.digest(), kRecordOnDevice);
}

void CommunicatorState::open_host_groups(const HostGroups::Layout& layout,
                                         const HostGroups::Ids& ids) {
  host_groups_ = std::make_unique<HostGroups>(*this, layout, ids);
}

// They lock the engine themselves. Nobody opens any once the device calls are over.
void CommunicatorState::close_host_groups() {
  HostGroups* groups = nullptr;
  {
    const Engine::Lock lock(runtime_->engine());
    groups = host_groups_.get();
  }
  if (groups != nullptr) groups->close();
}

// As the last but one of a group: its stream, the library's, waits for no gate.
Result<RequestState*> CommunicatorState::begin_inner(const Call& call) {
  UNISONO_TRY(usable());
  CallShape shape;
  UNISONO_TRY(check_call(call, rank_, size(), &shape));
  RequestState& request = requests_.prepare(call);
  RequestPool::copy_counts(request);
  begins_group_ = true;
  const Status launched = launch_on_device(request, shape);
  begins_group_ = false;
  if (!launched) {
    request.held = false;
    return launched;
  }
  requests_.note_running(request);
  runtime_->engine().start(request);
  return &request;
}

// An all-gather that says it is the device call that it serves.
Status CommunicatorState::launch_meeting(RequestState& request, const Call& call,
                                         std::span<const std::byte> mine,
                                         std::span<std::byte> all) {
  const Call meeting{.collective = Collective::kAllGather,
                     .in = mine.data(),
                     .out = all.data(),
                     .count = mine.size()};
  CallShape shape;
  UNISONO_TRY(check_call(meeting, rank_, size(), &shape));
  const CallRecord record = device_record(call);
  UNISONO_ASSIGN(const algorithms::Choice choice, choose_meeting(shape));
  if (choice.algorithm != nullptr) return launch_plan(request, meeting, shape, choice, record);
  begin_native(request, native_arguments(meeting, nullptr, record, choice.path), false);
  return Status();
}

Result<algorithms::Choice> CommunicatorState::choose_meeting(const CallShape& shape) const {
  return runtime_->selection().choose(selection_request(Collective::kAllGather, shape.agreed_bytes),
                                      "");
}

}  // namespace unisono::detail
