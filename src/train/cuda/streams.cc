#include "train/cuda/streams.h"

namespace unisono::train {

Streams::Streams(std::shared_ptr<const Gpu> gpu) : gpu_(std::move(gpu)) {
  const cuda::CudaApi& api = gpu_->api();
  const Gpu::Scope scope(*gpu_);
  try {
    gpu_->check(api.StreamCreateWithPriority(&main_, CU_STREAM_NON_BLOCKING, 0), "making a stream");
    // Communication comes first: others wait for it.
    gpu_->check(
        api.StreamCreateWithPriority(&side_, CU_STREAM_NON_BLOCKING, cuda::kHighestStreamPriority),
        "making a stream");
    gpu_->check(api.EventCreate(&event_, CU_EVENT_DISABLE_TIMING), "making an event");
  } catch (...) {
    close();
    throw;
  }
}

Streams::~Streams() { close(); }

void Streams::close() noexcept {
  const Gpu::QuietScope scope(*gpu_);
  if (!scope) return;
  for (CUstream stream : {main_, side_}) {
    if (stream == nullptr) continue;
    gpu_->api().StreamSynchronize(stream);
    gpu_->api().StreamDestroy(stream);
  }
  if (event_ != nullptr) gpu_->api().EventDestroy(event_);
}

// One event serves both ways: a wait is for the record that the event has at the call.
void Streams::follow(CUstream later, CUstream earlier) {
  const Gpu::Scope scope(*gpu_);
  gpu_->check(gpu_->api().EventRecord(event_, earlier), "recording an event");
  gpu_->check(gpu_->api().StreamWaitEvent(later, event_, 0), "waiting for an event");
}

void Streams::wait_for(CUstream stream) const {
  const Gpu::Scope scope(*gpu_);
  gpu_->check(gpu_->api().StreamSynchronize(stream), "waiting for its work");
}

}  // namespace unisono::train
