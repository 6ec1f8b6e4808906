#include "cuda/collectives/direct_buffers.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <string>

#include "backend/call_selection.h"
#include "cuda/collectives/cuda_calls.h"
#include "cuda/collectives/device_call.h"

namespace unisono {

Status DirectBuffers::offer(const DeviceCall& call) {
  if (!are_worth_it(call)) return Status();
  const Status found = find(call);
  if (!found) {
    offered_ = {};
    call.calls->tell_why_not_direct(*call.device, found);
    return Status();
  }
  if (!reads_input(call)) {
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
  if (call.input_on_host || call.output_on_host) return false;
  if (has_host_work(call.call, call.shape.in_place)) return false;
  const bool has_peer = is_point_to_point(call.call.collective)
                            ? call.call.peer != kAnyRank && call.call.peer != call.calls->rank()
                            : call.calls->size() > 1;
  const bool moves = call.shape.input_bytes + call.shape.output_bytes > 0;
  return has_peer && moves && message_bytes(call) >= kMessageBytesMin;
}

// Arithmetic, or blocks that pass through scratch memory: in an exchange in place, and in
// algorithms that selection does not choose for long messages.
bool DirectBuffers::has_host_work(const Call& call, bool in_place) {
  const CollectiveFacts& facts = facts_of(call.collective);
  return facts.reduces || (facts.exchanges_blocks() && in_place) || names_algorithm(call.options);
}

// Where blocks are uneven, their mean.
std::size_t DirectBuffers::message_bytes(const DeviceCall& call) {
  const Call& of = call.call;
  const CollectiveFacts& facts = facts_of(of.collective);
  const bool has_one = facts.has_root() && of.root != call.calls->rank();
  if (!facts.is_uneven || has_one) return of.count * size_of(of.type);
  const auto sum = [](std::span<const std::size_t> counts) {
    return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  };
  const std::size_t elements = std::max(sum(of.in_counts), sum(of.out_counts));
  return elements * size_of(of.type) / static_cast<std::size_t>(call.calls->size());
}

// Transports register whole buffers. In place the longer one holds the other.
Status DirectBuffers::find(const DeviceCall& call) {
  std::size_t in = call.shape.input_bytes, out = call.shape.output_bytes;
  if (call.shape.in_place) (in > out ? out : in) = 0;
  UNISONO_TRY(call.calls->admits_direct(call.call, in + out));
  cuda::DeviceMemory& memory = call.device->memory();
  if (in > 0) {
    UNISONO_ASSIGN(offered_[0], memory.direct(call.call.in, in));
  }
  if (out > 0) {
    UNISONO_ASSIGN(offered_[1], memory.direct(call.call.out, out));
  }
  return Status();
}

// The stream comes in a moment to a call that only another one of its group is before.
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
