#include "comm/direct_buffers.h"

#include <algorithm>
#include <string>

#include "comm/cuda_calls.h"
#include "comm/device_call.h"
#include "plan/plan_sizes.h"

namespace unisono {

Status DirectBuffers::offer(const DeviceCall& call) {
  if (!are_worth_it(call)) return Status();
  const Status found = find(call);
  if (!found) {
    offered_ = {};
    call.calls->tell_why_not_direct(*call.device, found);
    return Status();
  }
  if (call.shape.input_bytes == 0) {
    Result<bool> has_come = has_come_soon(call);
    if (!has_come || !*has_come) {
      offered_ = {};
      return has_come.status();
    }
  }
  for (const auto& memory : offered_) {
    if (memory != nullptr) offer_direct_memory(memory);
  }
  return Status();
}

bool DirectBuffers::are_worth_it(const DeviceCall& call) {
  const Collective collective = call.call.collective;
  if (call.input_on_host || call.output_on_host || reduces(collective)) return false;
  if (call.shape.input_bytes + call.shape.output_bytes == 0) return false;
  const bool has_peer = is_point_to_point(collective)
                            ? call.call.root != kAnyRank && call.call.root != call.calls->rank()
                            : call.calls->size() > 1;
  return has_peer && message_bytes(call) >= kMessageBytesMin;
}

// Of uneven blocks their mean.
std::size_t DirectBuffers::message_bytes(const DeviceCall& call) {
  if (!plan::has_uneven_blocks(call.call.collective))
    return call.call.count * size_of(call.call.type);
  return std::max(call.shape.input_bytes, call.shape.output_bytes) /
         static_cast<std::size_t>(call.calls->size());
}

Status DirectBuffers::find(const DeviceCall& call) {
  UNISONO_TRY(call.calls->admits_direct(call.call, message_bytes(call)));
  cuda::DeviceMemory& memory = call.device->memory();
  if (call.shape.input_bytes > 0) {
    UNISONO_ASSIGN(offered_[0], memory.direct(call.call.in, call.shape.input_bytes));
  }
  if (call.shape.output_bytes > 0) {
    UNISONO_ASSIGN(offered_[1], memory.direct(call.call.out, call.shape.output_bytes));
  }
  return Status();
}

// Behind nothing but another call of its group, the stream comes to it in a moment.
Result<bool> DirectBuffers::has_come_soon(const DeviceCall& call) {
  const cuda::CudaApi& api = call.device->api();
  const TimePoint limit = Clock::now() + kIdleStreamLimit;
  for (;;) {
    const CUresult found = api.StreamQuery(call.stream);
    if (found == CUDA_SUCCESS) return true;
    if (found != CUDA_ERROR_NOT_READY) {
      return api.check(found, "looking at the stream on " + call.device->name());
    }
    if (Clock::now() >= limit) return false;
  }
}

Status DirectBuffers::failure() const {
  for (const auto& memory : offered_) {
    if (memory != nullptr) UNISONO_TRY(memory->failure());
  }
  return Status();
}

void DirectBuffers::withdraw() {
  for (const auto& memory : offered_) {
    if (memory != nullptr) withdraw_direct_memory(*memory);
  }
  offered_ = {};
}

}  // namespace unisono
