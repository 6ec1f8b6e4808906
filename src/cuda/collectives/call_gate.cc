#include "cuda/collectives/call_gate.h"

#include "cuda/collectives/cuda_calls.h"
#include "cuda/collectives/device_call.h"

namespace unisono {

Status CallGate::make(const DeviceCall& call) {
  if (exists_ || !call.has_stream || call.stream == CU_STREAM_LEGACY ||
      !call.device->has_memops() || call.device->has_enough_gates() ||
      call.calls->communicator().ranks_in_process() > 1 || call.calls->is_connecting() ||
      call.calls->communicator().is_inside()) {
    return Status();
  }
  UNISONO_ASSIGN(gate_, call.device->take_gate());
  stream_ = call.stream;
  exists_ = true;
  if (!call.device->share()->waiting_streams().enter(stream_)) give_back(*call.device);
  return Status();
}

Status CallGate::close(const DeviceCall& call) {
  if (!exists_ || closed_) return Status();
  closed_ = true;
  UNISONO_TRY(call.device->enqueue_wait(call.stream, gate_));
  CudaCalls::note_enqueued(*call.started);
  return Status();
}

void CallGate::open() const {
  if (exists_) device::Device::open(gate_);
}

void CallGate::give_back(device::Device& device) {
  if (exists_) {
    device.share()->waiting_streams().leave(stream_);
    device.give_back(gate_);
  }
  exists_ = closed_ = false;
}

}  // namespace unisono
