#include "backend/request_pool.h"

#include <algorithm>

namespace unisono::detail {
namespace {

constexpr std::size_t kFirst = 4;
constexpr std::size_t kLooksPerCall = 2;

bool is_free(const std::shared_ptr<RequestState>& request) {
  return !request->held && !request->running &&
         !request->referred.load(std::memory_order_acquire) && request.use_count() == 1;
}

}  // namespace

RequestState& RequestPool::prepare(const Call& call) {
  RequestState& request = acquire();
  fill(request, call);
  return request;
}

RequestState& RequestPool::acquire() {
  if (RequestState* const free = find_free()) return *free;
  RequestState* const made = all_.emplace_back(std::make_shared<RequestState>()).get();
  made->on_done = [this](Task& done) { on_done_(static_cast<RequestState&>(done)); };
  return *made;
}

// The first ones each time, so that blocking calls have the same ones again. The others in turn:
// looks that are left over count for later calls, by which a call passes many that are under way
// once there are as many free ones.
RequestState* RequestPool::find_free() {
  const std::size_t first = std::min(all_.size(), kFirst);
  for (std::size_t i = 0; i < first; ++i) {
    if (is_free(all_[i])) return all_[i].get();
  }
  looks_ = std::min(looks_ + kLooksPerCall, all_.size() - first);
  while (looks_ > 0) {
    --looks_;
    if (++next_ >= all_.size()) next_ = first;
    if (is_free(all_[next_])) return all_[next_].get();
  }
  return nullptr;
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
