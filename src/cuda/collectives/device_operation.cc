#include "cuda/collectives/device_operation.h"

#include <string>

#include "cuda/collectives/cuda_calls.h"

namespace unisono {
namespace {

// What is wrong with the stream, and not with the device.
bool is_of_stream(CUresult error) {
  return error == CUDA_ERROR_INVALID_HANDLE || error == CUDA_ERROR_INVALID_VALUE ||
         error == CUDA_ERROR_INVALID_CONTEXT || error == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

}  // namespace

// A broadcast's buffer is input on the root alone.
bool reads_input(const DeviceCall& call) {
  const bool only_receives =
      call.call.collective == Collective::kBroadcast && call.calls->rank() != call.call.root;
  return call.shape.input_bytes > 0 && !only_receives;
}

DeviceOperation::DeviceOperation(CudaCalls& calls, StartedCall& call)
    : call_(calls, call, calls.communicator().host()),
      fused_(call_),
      hierarchical_(call_),
      staged_(call_) {}

Status DeviceOperation::begin(device::Device& device, const CallShape& shape) {
  status_ = Status();
  call_.device = &device;
  call_.call = call_.started->call;
  call_.shape = shape;
  call_.host.serve(call_.call);
  call_.started->on_host = &call_.host.call();
  const cuda::DriverSection section(device.api(), device.context());
  UNISONO_TRY(section.status());
  stage_ = first_stage();
  const Status begun = begin_stage();
  if (begun) return begun;
  stop(begun);
  end();
  return named(begun);
}

// From what all members know alike.
DeviceOperation::Stage DeviceOperation::first_stage() const {
  if (is_point_to_point(call_.call.collective)) return Stage::kStaged;
  switch (call_.calls->reach()) {
    case CudaCalls::Reach::kThreads:
    case CudaCalls::Reach::kProcesses:
      return Stage::kFused;
    case CudaCalls::Reach::kHosts:
      return HierarchicalCall::takes(call_.call) ? Stage::kHierarchical : Stage::kStaged;
    case CudaCalls::Reach::kStaged:
      break;
  }
  return Stage::kStaged;
}

// Messages of the driver and of memory know the device, not the rank.
Status DeviceOperation::named(const Status& failure) const {
  if (failure.rank() >= 0) return failure;
  const Rank self = call_.calls->rank();
  const std::string who =
      call_.calls->communicator().is_inside() ? "" : "rank " + std::to_string(self) + ": ";
  return Status(failure.code(), who + failure.message(), self);
}

Status DeviceOperation::begin_stage() {
  UNISONO_TRY(read_stream());
  UNISONO_TRY(check_buffers());
  if (stage_ == Stage::kStaged) UNISONO_TRY(staged_.check());
  if (stage_ != Stage::kFused) UNISONO_TRY(staged_.look_ahead());
  // Processes tell each other by words. Should the call turn out to be staged nothing has come into
  // the stream meanwhile, but for what may do so: other calls of a group, and work of a caller who
  // goes on.
  const bool is_told_by_words = stage_ == Stage::kFused &&
                                call_.calls->reach() == CudaCalls::Reach::kProcesses &&
                                call_.has_stream && !call_.started->in_group;
  const bool can_be_recorded = call_.capture != DeviceCall::kInvalidCapture;
  if (can_be_recorded && !is_told_by_words) UNISONO_TRY(record_ready());
  if (stage_ == Stage::kHierarchical) return hierarchical_.begin();
  return stage_ == Stage::kFused ? fused_.begin() : staged_.begin();
}

Status DeviceOperation::record_ready() {
  const device::Device& device = *call_.device;
  UNISONO_ASSIGN(call_.ready, call_.calls->take_ready_event(*call_.device));
  UNISONO_TRY(device.api().check(device.api().EventRecord(call_.ready, call_.stream),
                                 "recording on " + device.name()));
  call_.ready_number = call_.calls->next_ready_number();
  return Status();
}

Status DeviceOperation::close_gate() {
  call_.started->in_group = false;  // a stage that begins later closes its gate itself
  const cuda::DriverSection section(call_.device->api(), call_.device->context());
  if (stage_ == Stage::kHierarchical) return hierarchical_.close_gate();
  return stage_ == Stage::kStaged ? staged_.close_gate() : Status();
}

// The caller's stream, or the default one: what was enqueued there comes before the call.
Status DeviceOperation::read_stream() {
  call_.has_stream = call_.call.options.stream.has_value();
  call_.stream = CU_STREAM_LEGACY;
  if (call_.has_stream && *call_.call.options.stream != nullptr) UNISONO_TRY(check_own_stream());
  return read_capture();
}

Status DeviceOperation::check_own_stream() {
  const device::Device& device = *call_.device;
  const cuda::CudaApi& api = device.api();
  if (*call_.call.options.stream == CU_STREAM_PER_THREAD) {
    return Status(ErrorCode::kInvalidArgument,
                  "the per-thread default stream cannot be given to " +
                      std::string(name_of(call_.call.collective)) +
                      ": threads of the library work on the call too; give a stream of your own");
  }
  call_.stream = static_cast<CUstream>(*call_.call.options.stream);
  CUcontext context = nullptr;
  const CUresult found = api.StreamGetCtx(call_.stream, &context);
  if (found != CUDA_SUCCESS) {
    const Status why = api.check(
        found, "looking at the stream given to " + std::string(name_of(call_.call.collective)));
    if (!is_of_stream(found)) return why;
    return Status(ErrorCode::kInvalidArgument,
                  why.message() + "; a stream must live until the work in it is over");
  }
  if (context != device.context()) {
    return Status(ErrorCode::kInvalidArgument,
                  "the stream of " + std::string(name_of(call_.call.collective)) + " on rank " +
                      std::to_string(call_.calls->rank()) + " belongs to another context than " +
                      device.name() + "; make it with the rank's device current");
  }
  return Status();
}

// What the default stream is given while a blocking stream is captured would end that capture; to
// ask is harmless.
Status DeviceOperation::read_capture() {
  const device::Device& device = *call_.device;
  const cuda::CudaApi& api = device.api();
  call_.capture = 0;
  CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult asked = api.StreamIsCapturing(call_.stream, &capturing);
  if (asked == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) {
    return Status(ErrorCode::kUnsupported,
                  "a stream on " + device.name() + " is being captured, and " +
                      std::string(name_of(call_.call.collective)) +
                      " in the default stream would end that: give the call a stream");
  }
  UNISONO_TRY(api.check(asked, "looking at the stream on " + device.name()));
  if (capturing == CU_STREAM_CAPTURE_STATUS_NONE) return Status();
  if (capturing == CU_STREAM_CAPTURE_STATUS_INVALIDATED) {
    call_.capture = DeviceCall::kInvalidCapture;
    return Status();
  }
  if (api.StreamGetCaptureInfo == nullptr) {
    return Status(ErrorCode::kUnsupported,
                  "this driver cannot tell which graph a stream is captured into: call " +
                      std::string(name_of(call_.call.collective)) + " outside of the capture");
  }
  cuuint64_t id = 0;
#if CUDA_VERSION >= 13000  // the form that cuda_api.cc asks for
  const CUresult looked =
      api.StreamGetCaptureInfo(call_.stream, &capturing, &id, nullptr, nullptr, nullptr, nullptr);
#else
  const CUresult looked =
      api.StreamGetCaptureInfo(call_.stream, &capturing, &id, nullptr, nullptr, nullptr);
#endif
  UNISONO_TRY(api.check(looked, "looking at the capture on " + device.name()));
  // There is no number where an error has invalidated it meanwhile.
  call_.capture = capturing == CU_STREAM_CAPTURE_STATUS_ACTIVE ? id : DeviceCall::kInvalidCapture;
  return Status();
}

// Device memory must be the rank's own device's.
Status DeviceOperation::check_buffers() {
  const auto check = [&](const char* what, const void* pointer, std::size_t bytes,
                         bool* on_host) -> Status {
    *on_host = false;
    if (pointer == nullptr || bytes == 0) return Status();
    UNISONO_ASSIGN(const cuda::PointerFacts facts, call_.device->memory().facts(pointer, bytes));
    *on_host = !facts.device;
    if (!facts.device || facts.ordinal == call_.device->memory().ordinal()) return Status();
    return Status(ErrorCode::kInvalidArgument,
                  std::string(what) + " of " + std::string(name_of(call_.call.collective)) +
                      " is memory of device " + std::to_string(facts.ordinal) + " and rank " +
                      std::to_string(call_.calls->rank()) + " uses " + call_.device->name() +
                      "; give buffers of that device, or name the other one in "
                      "InitOptions::device");
  };
  UNISONO_TRY(check("in", call_.call.in, call_.shape.input_bytes, &call_.input_on_host));
  if (call_.has_one_buffer()) {
    call_.output_on_host = call_.input_on_host;
    return Status();
  }
  return check("out", call_.call.out, call_.shape.output_bytes, &call_.output_on_host);
}

// Only now does the host have to do with the call, and nobody is in it with this rank.
Status DeviceOperation::fall_back() {
  stage_ = Stage::kStaged;
  if (call_.ready == nullptr) UNISONO_TRY(record_ready());
  const Status checked = staged_.check();
  call_.started->concerns_call_alone = !checked.ok();
  return checked.ok() ? staged_.begin() : checked;
}

Result<StageState> DeviceOperation::advance_stage() {
  // Calls are looked at often, and threads that look share the context's locks.
  if (stage_ == Stage::kFused) {
    Result<StageState> state = fused_.advance();
    if (!state || *state != StageState::kFallback) return state;
  }
  const cuda::DriverSection section(call_.device->api(), call_.device->context());
  UNISONO_TRY(section.status());
  if (stage_ == Stage::kFused) {
    fused_.end();
    UNISONO_TRY(fall_back());
  } else if (stage_ == Stage::kHierarchical) {
    Result<StageState> state = hierarchical_.advance();
    if (!state || *state != StageState::kFallback) return state;
    UNISONO_TRY(fall_back());
  }
  return staged_.advance();
}

bool DeviceOperation::advance() {
  const Result<StageState> state = advance_stage();
  if (state && *state == StageState::kWaiting) return false;
  if (!state) {
    status_ = named(state.error());
    if (stage_ == Stage::kFused) call_.started->concerns_call_alone = fused_.refused();
    stop(status_);
  }
  end();
  return true;
}

void DeviceOperation::fail(const Status& cause) {
  stop(cause);
  status_ = cause;
  end();
}

// Neither the peers nor the streams reach the buffers afterwards, but for what takes longer than
// kReleaseLimit.
void DeviceOperation::stop(const Status& cause) {
  call_.host.fail(cause);
  const cuda::DriverSection section(call_.device->api(), call_.device->context());
  if (stage_ == Stage::kFused) fused_.fail();
  if (stage_ == Stage::kHierarchical) hierarchical_.fail(cause);
  if (stage_ == Stage::kStaged) staged_.fail();
}

void DeviceOperation::waiting_for(std::vector<Rank>* ranks) const {
  if (const Operation* const host = call_.host.operation()) {
    host->waiting_for(ranks);
  } else if (stage_ == Stage::kFused) {
    fused_.waiting_for(ranks);
  } else if (stage_ == Stage::kHierarchical) {
    hierarchical_.waiting_for(ranks);
  }
}

void DeviceOperation::end() {
  if (stage_ == Stage::kNone) return;
  call_.calls->pass_turn(*call_.started);
  fused_.end();
  hierarchical_.end();
  staged_.end();
  call_.gate.give_back(*call_.device);
  if (call_.ready != nullptr) call_.calls->give_back_ready(*call_.device, call_.ready);
  call_.ready = nullptr;
  stage_ = Stage::kNone;
}

}  // namespace unisono
