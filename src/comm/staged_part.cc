#include "comm/staged_part.h"

#include <algorithm>
#include <string>
#include <utility>

#include "comm/cuda_calls.h"

namespace unisono {
namespace {

CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

// Bytes between the blocks of an output are the caller's and must come back as they were.
bool keeps_gaps(const Call& call, const CallShape& shape) {
  return !call.out_displacements.empty() && shape.output_bytes > 0;
}

}  // namespace

Status StagedPart::place(device::Device& device, const Call& call, const CallShape& shape) {
  device_ = &device;
  call_ = call;
  shape_ = shape;
  UNISONO_ASSIGN(copied_, device.take_event());
  const Status placed = place_buffers();
  if (!placed) release();
  return placed;
}

// Staging memory that lies to itself as the caller's buffers do.
Status StagedPart::place_buffers() {
  host_input_ = host_output_ = nullptr;
  if (shape_.in_place) {
    const auto* in = static_cast<const std::byte*>(call_.in);
    const auto* out = static_cast<const std::byte*>(call_.out);
    UNISONO_ASSIGN(input_,
                   device_->take_staging(std::max(shape_.input_bytes, shape_.output_bytes)));
    host_input_ = input_.data() + (in > out ? in - out : 0);
    host_output_ = input_.data() + (out > in ? out - in : 0);
    return Status();
  }
  if (shape_.input_bytes > 0) {
    UNISONO_ASSIGN(input_, device_->take_staging(shape_.input_bytes));
    host_input_ = input_.data();
  }
  if (shape_.output_bytes > 0) {
    UNISONO_ASSIGN(output_, device_->take_staging(shape_.output_bytes));
    host_output_ = output_.data();
  }
  return Status();
}

Status StagedPart::copy_out(CUevent ready, bool reads_input) {
  const cuda::CudaApi& api = device_->api();
  const CUstream stream = device_->outward_stream();
  const auto copy = [&](std::byte* to, const void* from, std::size_t bytes) {
    return api.check(api.MemcpyAsync(address(to), address(from), bytes, stream),
                     "copying " + std::to_string(bytes) + " bytes from " + device_->name());
  };
  UNISONO_TRY(api.check(api.StreamWaitEvent(stream, ready, 0), "waiting on " + device_->name()));
  if (keeps_gaps(call_, shape_)) UNISONO_TRY(copy(host_output_, call_.out, shape_.output_bytes));
  if (reads_input && shape_.input_bytes > 0) {
    UNISONO_TRY(copy(host_input_, call_.in, shape_.input_bytes));
  }
  return record(stream);
}

Status StagedPart::copy_in(std::size_t bytes, const device::Device::Gate* gate) {
  const cuda::CudaApi& api = device_->api();
  const CUstream stream = device_->inward_stream();
  if (bytes > 0) {
    UNISONO_TRY(api.check(api.MemcpyAsync(address(call_.out), address(host_output_), bytes, stream),
                          "copying " + std::to_string(bytes) + " bytes to " + device_->name()));
  }
  if (gate != nullptr) UNISONO_TRY(device_->enqueue_open(stream, *gate));
  return record(stream);
}

Status StagedPart::record(CUstream stream) {
  return device_->api().check(device_->api().EventRecord(copied_, stream),
                              "recording on " + device_->name());
}

void StagedPart::finish() {
  if (copied_ != nullptr) device_->api().EventSynchronize(copied_);
  release();
}

void StagedPart::release() {
  input_.release();
  output_.release();
  if (copied_ != nullptr) device_->give_back(copied_);
  copied_ = nullptr;
}

void StagedPart::leave_to(CudaCalls& calls) {
  calls.leave_behind(std::exchange(copied_, nullptr), std::move(input_), std::move(output_));
}

}  // namespace unisono
