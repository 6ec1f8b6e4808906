#include "cuda/collectives/staged_part.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "cuda/collectives/cuda_calls.h"

namespace unisono {
namespace {

CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

}  // namespace

Result<bool> StagedPart::place(const DeviceCall& whole, const Call& call, const CallShape& shape) {
  calls_ = whole.calls;
  device_ = whole.device;
  call_ = call;
  shape_ = shape;
  direct_ = whole.direct.are_offered() ? &whole.direct : nullptr;
  reads_input_ = direct_ == nullptr && reads_input(whole);
  // Bytes between the blocks of an output must come back as they were.
  keeps_gaps_ = direct_ == nullptr && !call.out_displacements.empty() && shape.output_bytes > 0;
  input_on_host_ = whole.input_on_host;
  output_on_host_ = whole.output_on_host;
  UNISONO_ASSIGN(copied_, device_->take_event());
  Result<bool> placed = place_buffers();
  if (!placed || !*placed) release();
  return placed;
}

// Takes staging memory for the input and the output. Where the caller's two buffers overlap, both
// get one block, in which they overlap by as much.
Result<bool> StagedPart::place_buffers() {
  host_input_ = host_output_ = nullptr;
  if (direct_ != nullptr) {
    host_input_ = const_cast<std::byte*>(static_cast<const std::byte*>(call_.in));
    host_output_ = static_cast<std::byte*>(call_.out);
    return true;
  }
  if (shape_.in_place) {
    const auto* in = static_cast<const std::byte*>(call_.in);
    const auto* out = static_cast<const std::byte*>(call_.out);
    const std::size_t bytes = std::max(shape_.input_bytes, shape_.output_bytes);
    if (holds_bound()) UNISONO_TRY(device_->staging().can_hold(bytes, 0));
    UNISONO_ASSIGN(const bool taken, take_staging(bytes, &input_));
    if (!taken) return false;
    host_input_ = input_.data() + (in > out ? in - out : 0);
    host_output_ = input_.data() + (out > in ? out - in : 0);
    return true;
  }
  if (holds_bound()) {
    UNISONO_TRY(device_->staging().can_hold(shape_.input_bytes, shape_.output_bytes));
  }
  for (auto [bytes, block] :
       {std::pair(shape_.input_bytes, &input_), std::pair(shape_.output_bytes, &output_)}) {
    if (bytes == 0) continue;
    UNISONO_ASSIGN(const bool taken, take_staging(bytes, block));
    if (!taken) return false;
  }
  host_input_ = input_.data();
  host_output_ = output_.data();
  return true;
}

// Messages that wait for each other's room would wait for ever.
bool StagedPart::holds_bound() const { return !is_point_to_point(call_.collective); }

Result<bool> StagedPart::take_staging(std::size_t bytes, device::StagingPool::Block* block) {
  using Bound = device::StagingPool::Bound;
  const Bound bound = holds_bound() ? Bound::kHolds : Bound::kMayExceed;
  using Meanwhile = device::StagingPool::Meanwhile;
  const Meanwhile meanwhile =
      device_->has_streams_that_wait() ? Meanwhile::kOrdinaryMemory : Meanwhile::kNothing;
  UNISONO_ASSIGN(auto taken, device_->staging().take(bytes, bound, meanwhile));
  if (!taken.has_value()) return false;
  *block = std::move(*taken);
  return true;
}

Status StagedPart::copy_out() {
  const CUstream stream = device_->outward_stream();
  if (keeps_gaps_) {
    UNISONO_TRY(copy(host_output_, call_.out, shape_.output_bytes, output_on_host_, stream));
  }
  if (reads_input_) {
    UNISONO_TRY(copy(host_input_, call_.in, shape_.input_bytes, input_on_host_, stream));
  }
  return record(stream);
}

Status StagedPart::copy_in(std::size_t bytes) {
  const CUstream stream = device_->inward_stream();
  if (direct_ != nullptr) {
    UNISONO_TRY(direct_->failure());
    if (bytes > 0) UNISONO_TRY(device_->memory().flush_direct());
    bytes = 0;
  }
  UNISONO_TRY(copy(call_.out, host_output_, bytes, output_on_host_, stream));
  return record(stream);
}

// Between two places of the host a driver would copy at once, behind all that is in the stream.
Status StagedPart::copy(void* to, const void* from, std::size_t bytes, bool on_host,
                        CUstream stream) {
  if (bytes == 0) return Status();
  if (on_host) {
    std::memcpy(to, from, bytes);
    return Status();
  }
  UNISONO_TRY(device_->api().check(
      device_->api().MemcpyAsync(address(to), address(from), bytes, stream),
      "copying " + std::to_string(bytes) + " bytes to or from " + device_->name()));
  unrecorded_ = stream;
  return Status();
}

Status StagedPart::record(CUstream stream) {
  UNISONO_TRY(device_->api().check(device_->api().EventRecord(copied_, stream),
                                   "recording on " + device_->name()));
  unrecorded_ = nullptr;
  return Status();
}

// The driver may refuse to record behind a copy that it has taken.
bool StagedPart::is_copying() const {
  const cuda::CudaApi& api = device_->api();
  const CUresult asked =
      unrecorded_ != nullptr ? api.StreamQuery(unrecorded_) : api.EventQuery(copied_);
  return asked == CUDA_ERROR_NOT_READY;
}

// Other ranks' copies may come first, and a stream that waits may hold all of them up.
void StagedPart::await_copy() const {
  while (copied_ != nullptr && is_copying() && calls_->may_await_release()) continue;
}

void StagedPart::finish() {
  await_copy();
  if (copied_ != nullptr && is_copying()) {
    device_->note_stuck();
    input_.abandon();
    output_.abandon();
    copied_ = nullptr;
  }
  release();
}

void StagedPart::release() {
  input_.release();
  output_.release();
  if (copied_ != nullptr) device_->give_back(copied_);
  copied_ = nullptr;
  unrecorded_ = nullptr;
}

}  // namespace unisono
