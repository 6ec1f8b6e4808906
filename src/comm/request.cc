// The public class over RequestState: statuses become exceptions here.
#include "unisono/request.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <vector>

#include "base/insist.h"
#include "comm/member.h"

namespace unisono {

using detail::kInherited;
using detail::member;

namespace {

// What a request refers to, while callbacks may end the request.
struct Kept {
  explicit Kept(const std::shared_ptr<detail::RequestState>& request)
      : communicator(request->communicator), state(request) {}
  std::shared_ptr<detail::CommunicatorState> communicator;
  std::shared_ptr<detail::RequestState> state;
};

// The buffers are lent until the end, which the call's deadline bounds. Where beats lack memory for
// long nothing moves any more, and the call fails.
void await_end(detail::CommunicatorState& communicator, detail::RequestState& request) noexcept {
  if (insist([&] { communicator.wait(request, kNever); })) return;
  const Engine::Lock lock(communicator.runtime().engine());
  communicator.fail_without_memory();
}

}  // namespace

Request::Request() = default;
Request::Request(Request&&) noexcept = default;
Request::Request(std::shared_ptr<detail::RequestState> state) : state_(std::move(state)) {}

Request& Request::operator=(Request&& other) noexcept {
  if (this != &other) {
    Request ended(std::move(*this));
    state_ = std::move(other.state_);
  }
  return *this;
}

Request::~Request() {
  if (state_ == nullptr) return;
  if (state_->communicator->runtime().is_forked_copy()) {
    leave_to_parent(std::move(state_));
    return;
  }
  await_end(*state_->communicator, *state_);
  const std::shared_ptr<detail::CommunicatorState> keep = state_->let_go();
  state_.reset();
}

bool Request::test() {
  if (state_ == nullptr || state_->communicator->runtime().is_forked_copy()) return true;
  const Kept kept(state_);
  try {
    return kept.communicator->test(*kept.state);
  } catch (const std::bad_alloc&) {  // of a beat, which may be another call's
    return kept.state->done.load(std::memory_order_acquire);
  }
}

void Request::wait() {
  if (state_ == nullptr) return;
  const Kept kept(state_);
  member(kept.communicator, kept.state->call.collective).wait(*kept.state, kNever);
  if (!kept.state->outcome) {
    throw kept.communicator->error(kept.state->outcome, kept.state->call.collective);
  }
}

bool Request::wait_for(std::chrono::milliseconds limit) {
  if (state_ == nullptr) return true;
  const Kept kept(state_);
  const Collective collective = kept.state->call.collective;
  if (!member(kept.communicator, collective).wait(*kept.state, later(Clock::now(), limit))) {
    return false;
  }
  if (!kept.state->outcome) throw kept.communicator->error(kept.state->outcome, collective);
  return true;
}

void Request::on_completion(std::function<void(const Status&)> callback) {
  // It could be called on the library's own thread, where nobody catches what an empty one throws.
  if (callback == nullptr) {
    throw Error(Status(ErrorCode::kInvalidArgument, "on_completion() was given no function"),
                {.operation = "on_completion"});
  }
  if (state_ == nullptr) return callback(Status());
  if (state_->communicator->runtime().is_forked_copy()) return callback(kInherited);
  const Kept kept(state_);
  kept.communicator->on_completion(*kept.state, std::move(callback));
}

void Request::detach(std::shared_ptr<void> owner) {
  if (state_ == nullptr) return;
  if (state_->communicator->runtime().is_forked_copy()) return leave_to_parent(std::move(state_));
  // The owner may have this request, and goes as soon as the call is over.
  const Kept kept(state_);
  state_.reset();
  std::shared_ptr<std::shared_ptr<void>> until_over;
  try {
    until_over = std::make_shared<std::shared_ptr<void>>(std::move(owner));
    kept.communicator->on_completion(*kept.state,
                                     [until_over](const Status&) { until_over->reset(); });
  } catch (const std::bad_alloc&) {
    // Nothing will release the owner when the call is over, so it stays here until then.
    await_end(*kept.communicator, *kept.state);
    if (until_over != nullptr) until_over->reset();
  }
  kept.state->let_go();
}

namespace {

std::vector<Request*> pointers_to(std::span<Request> requests) {
  std::vector<Request*> pointers;
  pointers.reserve(requests.size());
  for (Request& request : requests) pointers.push_back(&request);
  return pointers;
}

// Where the first of those that are over stands; -1: none is.
std::ptrdiff_t find_over(const std::vector<Kept>& requests) {
  const auto over = std::find_if(requests.begin(), requests.end(), [](const Kept& each) {
    return each.state->done.load(std::memory_order_acquire);
  });
  return over == requests.end() ? -1 : over - requests.begin();
}

// Of one job.
void await_one_of(const std::vector<Kept>& requests) {
  std::vector<const std::atomic<bool>*> done;
  for (const Kept& each : requests) done.push_back(&each.state->done);
  requests.front().communicator->runtime().engine().wait_any(done);
}

// Of several: each beat moves all that its rank has, and between them the first one's rank waits
// for a moment.
void await_one_of_jobs(const std::vector<Kept>& requests) {
  constexpr std::chrono::milliseconds kBetweenLooks{1};
  std::vector<Engine*> engines;
  for (const Kept& each : requests) engines.push_back(&each.communicator->runtime().engine());
  std::sort(engines.begin(), engines.end());
  engines.erase(std::unique(engines.begin(), engines.end()), engines.end());
  while (find_over(requests) < 0) {
    for (Engine* const engine : engines) engine->beat();
    if (find_over(requests) >= 0) break;
    const Kept& first = requests.front();
    first.communicator->wait(*first.state, later(Clock::now(), kBetweenLooks));
  }
  for (Engine* const engine : engines) engine->flush();
}

}  // namespace

void wait_all(std::span<Request> requests) { wait_all(pointers_to(requests)); }

void wait_all(std::span<Request* const> requests) {
  for (const Request* const request : requests) {
    if (request == nullptr || request->state_ == nullptr) continue;
    const Kept kept(request->state_);
    if (kept.communicator->runtime().is_forked_copy()) continue;
    kept.communicator->wait(*kept.state, kNever);
  }
  for (Request* const request : requests) {
    if (request != nullptr) request->wait();
  }
}

std::size_t wait_any(std::span<Request> requests) { return wait_any(pointers_to(requests)); }

std::size_t wait_any(std::span<Request* const> requests) {
  std::vector<Kept> kept;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (requests[i] == nullptr || requests[i]->state_ == nullptr) continue;
    if (requests[i]->state_->communicator->runtime().is_forked_copy()) return i;
    kept.emplace_back(requests[i]->state_);
    places.push_back(i);
  }
  if (kept.empty()) {
    throw Error(Status(ErrorCode::kInvalidArgument, "wait_any() was given no request"),
                {.operation = "wait_any"});
  }
  const Runtime* const first = &kept.front().communicator->runtime();
  const bool is_one_job = std::all_of(kept.begin(), kept.end(), [&](const Kept& each) {
    return &each.communicator->runtime() == first;
  });
  if (is_one_job) {
    await_one_of(kept);
  } else {
    await_one_of_jobs(kept);
  }
  return places[static_cast<std::size_t>(find_over(kept))];
}

Status Request::status() const {
  if (state_ == nullptr) return Status();
  if (state_->communicator->runtime().is_forked_copy()) return kInherited;
  return state_->done.load(std::memory_order_acquire) ? state_->outcome : Status();
}

Rank Request::source() const {
  if (state_ == nullptr) return -1;
  return state_->communicator->members().find(state_->at_peers().message.result().peer);
}

Tag Request::tag() const { return state_ == nullptr ? 0 : state_->at_peers().message.result().tag; }

std::size_t Request::bytes() const {
  return state_ == nullptr ? 0 : state_->at_peers().message.result().bytes;
}

}  // namespace unisono
