#include "cuda/collectives/captured_calls.h"

namespace unisono {

CapturedCalls::~CapturedCalls() {
  for (const auto& [capture, event] : last_) device_.give_back(event);
}

Status CapturedCalls::keep(const cuda::BufferTicket& ticket) {
  if (!known_.insert({ticket.process_key, ticket.allocation_id, ticket.base}).second) {
    return Status();
  }
  UNISONO_ASSIGN(std::shared_ptr<void> kept, device_.memory().keep(ticket));
  if (kept != nullptr) kept_.push_back(std::move(kept));
  return Status();
}

Status CapturedCalls::begin(CUstream stream, std::uint64_t capture) {
  const auto last = last_.find(capture);
  if (last == last_.end()) return Status();
  const cuda::CudaApi& api = device_.api();
  return api.check(api.StreamWaitEvent(stream, last->second, 0),
                   "capturing behind the call before on " + device_.name());
}

Status CapturedCalls::end(CUstream stream, std::uint64_t capture) {
  auto last = last_.find(capture);
  if (last == last_.end()) {
    UNISONO_ASSIGN(const CUevent event, device_.take_event());
    last = last_.emplace(capture, event).first;
  }
  const cuda::CudaApi& api = device_.api();
  return api.check(api.EventRecord(last->second, stream),
                   "capturing an event on " + device_.name());
}

}  // namespace unisono
