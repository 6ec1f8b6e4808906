#include "cuda/collectives/captured_calls.h"

namespace unisono {

Status CapturedCalls::keep(const cuda::BufferTicket& ticket) {
  if (!known_.insert({ticket.process_key, ticket.allocation_id, ticket.base}).second) {
    return Status();
  }
  UNISONO_ASSIGN(std::shared_ptr<void> kept, device_.memory().keep(ticket));
  if (kept != nullptr) kept_.push_back(std::move(kept));
  return Status();
}

Status CapturedCalls::begin(CUstream stream, std::uint64_t capture) {
  if (capture_ != capture) return Status();
  const cuda::CudaApi& api = device_.api();
  return api.check(api.StreamWaitEvent(stream, last_, 0),
                   "capturing behind the call before on " + device_.name());
}

Status CapturedCalls::end(CUstream stream, std::uint64_t capture) {
  if (last_ == nullptr) {
    UNISONO_ASSIGN(last_, device_.take_event());
  }
  capture_ = capture;
  const cuda::CudaApi& api = device_.api();
  return api.check(api.EventRecord(last_, stream), "capturing an event on " + device_.name());
}

}  // namespace unisono
