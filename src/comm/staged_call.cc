#include "comm/staged_call.h"

#include <algorithm>
#include <string>

#include "comm/cuda_calls.h"

namespace unisono {
namespace {

CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

}  // namespace

Status StagedCall::begin() {
  if (call_.capture != 0) {
    return Status(ErrorCode::kUnsupported,
                  std::string(name_of(call_.call.collective)) + " on " + call_.device->name() +
                      " goes through host memory here, which a CUDA graph cannot hold: call it "
                      "outside of the capture (kernels alone serve ranks that are threads of one "
                      "process)");
  }
  host_ = nullptr;
  gate_closed_ = false;
  UNISONO_ASSIGN(copied_, call_.device->take_event());
  UNISONO_TRY(close_gate());
  const bool others_wait = call_.calls->waiting_for_room > 0;
  state_ = State::kWaitingForRoom;
  ++call_.calls->waiting_for_room;
  return others_wait ? Status() : start_copying();
}

Status StagedCall::start_copying() {
  if (const Status placed = place(); !placed) {
    input_.release();
    output_.release();
    const bool may_fit_later =
        placed.code() == ErrorCode::kOutOfResources && call_.device->has_lent_staging();
    return may_fit_later ? Status() : placed;
  }
  --call_.calls->waiting_for_room;
  state_ = State::kCopyingOut;
  return copy_out();
}

// Staging memory that lies to itself as the caller's buffers do.
Status StagedCall::place() {
  const CallShape& shape = call_.shape;
  host_input_ = host_output_ = nullptr;
  if (shape.in_place) {
    const auto* in = static_cast<const std::byte*>(call_.call.in);
    const auto* out = static_cast<const std::byte*>(call_.call.out);
    UNISONO_ASSIGN(input_,
                   call_.device->take_staging(std::max(shape.input_bytes, shape.output_bytes)));
    host_input_ = input_.data() + (in > out ? in - out : 0);
    host_output_ = input_.data() + (out > in ? out - in : 0);
    return Status();
  }
  if (shape.input_bytes > 0) {
    UNISONO_ASSIGN(input_, call_.device->take_staging(shape.input_bytes));
    host_input_ = input_.data();
  }
  if (shape.output_bytes > 0) {
    UNISONO_ASSIGN(output_, call_.device->take_staging(shape.output_bytes));
    host_output_ = output_.data();
  }
  return Status();
}

// Bytes between the blocks of an output are the caller's and must come back as they were.
bool StagedCall::keeps_gaps() const {
  return !call_.call.out_displacements.empty() && call_.shape.output_bytes > 0;
}

Status StagedCall::copy_out() {
  const device::Device& device = *call_.device;
  const cuda::CudaApi& api = device.api();
  const CUstream stream = device.outward_stream();
  const auto copy = [&](std::byte* to, const void* from, std::size_t bytes) {
    return api.check(api.MemcpyAsync(address(to), address(from), bytes, stream),
                     "copying " + std::to_string(bytes) + " bytes from " + device.name());
  };
  UNISONO_TRY(
      api.check(api.StreamWaitEvent(stream, call_.ready, 0), "waiting on " + device.name()));
  const bool is_source =
      call_.call.collective != Collective::kBroadcast || call_.calls->rank() == call_.call.root;
  if (keeps_gaps()) UNISONO_TRY(copy(host_output_, call_.call.out, call_.shape.output_bytes));
  if (call_.shape.input_bytes > 0 && is_source) {
    UNISONO_TRY(copy(host_input_, call_.call.in, call_.shape.input_bytes));
  }
  return api.check(api.EventRecord(copied_, stream), "recording on " + device.name());
}

// From here on the caller's stream waits for the result; without stream memory operations the
// caller itself does.
Status StagedCall::close_gate() {
  if (!call_.has_stream || !call_.device->has_memops()) return Status();
  UNISONO_ASSIGN(gate_, call_.device->take_gate());
  gate_closed_ = true;
  UNISONO_TRY(call_.device->enqueue_wait(call_.stream, gate_));
  call_.calls->note_enqueued(*call_.request);
  return Status();
}

Result<StageState> StagedCall::advance() {
  if (state_ == State::kWaitingForRoom) {
    if (!call_.calls->has_turn(*call_.request)) return StageState::kWaiting;
    UNISONO_TRY(start_copying());
    if (state_ == State::kWaitingForRoom) return StageState::kWaiting;
  }
  if (state_ == State::kCopyingOut) {
    if (!call_.calls->has_turn(*call_.request)) return StageState::kWaiting;
    UNISONO_ASSIGN(const bool over, call_.device->is_over(copied_));
    if (!over) return StageState::kWaiting;
    UNISONO_TRY(launch_host());
  }
  if (state_ == State::kOnHost) {
    if (!host_->advance()) return StageState::kWaiting;
    UNISONO_TRY(Status(host_->status()));
    UNISONO_TRY(copy_in());
  }
  UNISONO_ASSIGN(const bool over, call_.device->is_over(copied_));
  if (!over) return StageState::kWaiting;
  state_ = State::kOver;
  return StageState::kOver;
}

Status StagedCall::launch_host() {
  UNISONO_ASSIGN(host_,
                 call_.calls->launch_host(*call_.request, call_.shape, host_input_, host_output_));
  state_ = State::kOnHost;
  return Status();
}

// A receive may have got less than its room; a scan's first rank gets nothing.
std::size_t StagedCall::result_bytes() const {
  const Call& call = call_.call;
  switch (call.collective) {
    case Collective::kReceive:
      return std::min(call_.shape.output_bytes, call_.calls->received_bytes(*call_.request));
    case Collective::kExscan:
      return call_.calls->rank() == 0 ? 0 : call_.shape.output_bytes;
    case Collective::kBroadcast:
      return call_.calls->rank() == call.root ? 0 : call_.shape.output_bytes;
    default:
      return call_.shape.output_bytes;
  }
}

Status StagedCall::copy_in() {
  const device::Device& device = *call_.device;
  const cuda::CudaApi& api = device.api();
  const CUstream stream = device.inward_stream();
  if (const std::size_t bytes = result_bytes(); bytes > 0) {
    UNISONO_TRY(
        api.check(api.MemcpyAsync(address(call_.call.out), address(host_output_), bytes, stream),
                  "copying " + std::to_string(bytes) + " bytes to " + device.name()));
  }
  if (gate_closed_) UNISONO_TRY(device.enqueue_open(stream, gate_));
  UNISONO_TRY(api.check(api.EventRecord(copied_, stream), "recording on " + device.name()));
  state_ = State::kCopyingIn;
  return Status();
}

void StagedCall::fail() {
  if (state_ == State::kWaitingForRoom) --call_.calls->waiting_for_room;
  if (gate_closed_) device::Device::open(gate_);
  // Copies to the caller's buffers wait for nothing but each other; afterwards the buffers are
  // free. A copy out may have to wait for work of the caller's, and only reads.
  if (state_ == State::kCopyingIn) call_.device->api().EventSynchronize(copied_);
  if (state_ == State::kCopyingOut && copied_ != nullptr) {
    call_.calls->leave_behind(copied_, std::move(input_), std::move(output_));
    copied_ = nullptr;
  }
  state_ = State::kOver;
}

void StagedCall::end() {
  if (state_ == State::kWaitingForRoom) --call_.calls->waiting_for_room;
  input_.release();
  output_.release();
  if (copied_ != nullptr) call_.device->give_back(copied_);
  copied_ = nullptr;
  if (gate_closed_) call_.device->give_back(gate_);
  gate_closed_ = false;
  state_ = State::kOver;
}

}  // namespace unisono
