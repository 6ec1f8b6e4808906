#include "backend/request_pool.h"

#include <algorithm>

namespace unisono::detail {

RequestState& RequestPool::prepare(const Call& call) {
  RequestState& request = acquire();
  fill(request, call);
  return request;
}

RequestState& RequestPool::acquire() {
  const auto found = std::find_if(all_.begin(), all_.end(), [](const auto& candidate) {
    return !candidate->held && !candidate->running &&
           !candidate->referred.load(std::memory_order_acquire) && candidate.use_count() == 1;
  });
  RequestState* request = nullptr;
  if (found != all_.end()) {
    request = found->get();
  } else {
    request = all_.emplace_back(std::make_shared<RequestState>()).get();
    request->on_done = [this](Task& done) { on_done_(static_cast<RequestState&>(done)); };
  }
  running_.reserve(all_.capacity());
  return *request;
}

void RequestPool::fill(RequestState& request, const Call& call) {
  request.reset(call);
  request.outcome = Status();
  request.done.store(false, std::memory_order_relaxed);
  request.notes = {};
  request.callbacks.reset();
}

void RequestPool::copy_counts(RequestState& request) {
  std::span<const std::size_t>* spans[]{&request.call.in_counts, &request.call.in_displacements,
                                        &request.call.out_counts, &request.call.out_displacements};
  for (int i = 0; i < 4; ++i) {
    if (spans[i]->empty()) continue;
    request.counts[i].assign(spans[i]->begin(), spans[i]->end());
    *spans[i] = request.counts[i];
  }
}

}  // namespace unisono::detail
