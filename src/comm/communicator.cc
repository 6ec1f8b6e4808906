// The public class over CommunicatorState: statuses become exceptions here and nowhere else.
#include "unisono/communicator.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <string_view>
#include <vector>

#include "backend/call_check.h"
#include "comm/communicator_state.h"
#include "comm/split.h"

namespace unisono {
namespace {

const Status kEmpty(ErrorCode::kNotMember,
                    "this rank is no member of the communicator (split() was called with a "
                    "negative color, or the communicator was moved from)");

const Status kInherited(ErrorCode::kNotMember,
                        "a forked child has no part in its parent's job: call init() in the child, "
                        "or fork before init()");

std::string_view words_for(std::string_view operation) { return operation; }
std::string_view words_for(Collective collective) { return name_of(collective); }

// The state of a communicator that may be used here.
template <typename Operation>
detail::CommunicatorState& member(const std::shared_ptr<detail::CommunicatorState>& state,
                                  const Operation& operation) {
  if (state != nullptr && !state->runtime().is_forked_copy()) return *state;
  throw Error(state == nullptr ? kEmpty : kInherited,
              {.operation = std::string(words_for(operation))});
}

}  // namespace

Collectives::Collectives(std::shared_ptr<detail::CommunicatorState> state)
    : state_(std::move(state)) {}

void Collectives::size_call(Call* call, std::size_t in_elements, std::size_t out_elements) const {
  member(state_, call->collective);
  const Status fits = fit_buffers(call, in_elements, out_elements, rank(), size());
  if (!fits) throw Error(fits, {.operation = std::string(name_of(call->collective))});
}

void Collectives::place_call(Call* call, std::size_t elements) const {
  member(state_, call->collective);
  const Status fits = place_in_buffer(call, elements, rank(), size());
  if (!fits) throw Error(fits, {.operation = std::string(name_of(call->collective))});
}

Communicator::Communicator() = default;
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator::Communicator(std::shared_ptr<detail::CommunicatorState> state)
    : Collectives(std::move(state)) {}

Communicator& Communicator::operator=(Communicator&& other) noexcept {
  if (this != &other) {
    close();
    state_ = std::move(other.state_);
  }
  return *this;
}

Communicator::~Communicator() { close(); }

Rank Collectives::rank() const { return state_ == nullptr ? -1 : state_->rank(); }
int Collectives::size() const { return state_ == nullptr ? 0 : state_->size(); }
bool Communicator::empty() const { return state_ == nullptr; }

Status Communicator::status() const {
  if (state_ == nullptr) return kEmpty;
  return state_->runtime().is_forked_copy() ? kInherited : state_->status();
}

std::string Communicator::describe() const {
  if (state_ == nullptr) return "empty communicator";
  return "rank " + std::to_string(rank()) + " of " + std::to_string(size()) + " on " +
         host_of(rank()) + (state_->native() != nullptr ? ", shared memory" : "");
}

std::string Communicator::host_of(Rank rank) const {
  if (state_ == nullptr || rank < 0 || rank >= size()) return "";
  const Rank world = state_->members().world_rank(rank);
  return state_->runtime().world().members[static_cast<std::size_t>(world)].host_name;
}

void Collectives::run(const Call& call) {
  const Status status = member(state_, call.collective).run(call);
  if (!status) throw state_->error(status, call.collective);
}

Request Collectives::start(const Call& call) {
  Result<std::shared_ptr<detail::RequestState>> request =
      member(state_, call.collective).start(call);
  if (!request) throw state_->error(request.error(), call.collective);
  return Request(std::move(*request));
}

Received Communicator::receive(void* data, std::size_t count, DataType type, Rank source, Tag tag,
                               const CallOptions& options) {
  Received received;
  const Status status = member(state_, "receive")
                            .run({.collective = Collective::kReceive,
                                  .out = data,
                                  .count = count,
                                  .type = type,
                                  .peer = source,
                                  .tag = tag,
                                  .options = options},
                                 &received);
  if (!status) throw state_->error(status, Collective::kReceive);
  return received;
}

Received Communicator::send_receive(const void* sent, std::size_t sent_count, Rank target,
                                    void* received, std::size_t received_count, Rank source,
                                    DataType type, Tag tag, const CallOptions& options) {
  const Call calls[]{{.collective = Collective::kSend,
                      .in = sent,
                      .count = sent_count,
                      .type = type,
                      .peer = target,
                      .tag = tag,
                      .options = options},
                     {.collective = Collective::kReceive,
                      .out = received,
                      .count = received_count,
                      .type = type,
                      .peer = source,
                      .tag = tag,
                      .options = options}};
  Received result;
  const detail::FirstFailure first =
      detail::run_together(member(state_, "send_receive"), calls, &result);
  if (!first.status) throw state_->error(first.status, first.collective);
  return result;
}

void Communicator::group(std::span<const Call> calls) {
  const detail::FirstFailure first = detail::run_together(member(state_, "group"), calls, nullptr);
  if (!first.status) throw state_->error(first.status, first.collective);
}

Communicator Communicator::split(int color, int key) {
  Result<std::shared_ptr<detail::CommunicatorState>> part =
      detail::split(member(state_, "split"), color, key);
  if (!part) throw Error(part.error(), {.operation = "split"});
  return Communicator(std::move(*part));
}

Communicator Communicator::subset(std::span<const Rank> ranks) {
  member(state_, "subset");
  const auto refuse = [](const std::string& why) {
    throw Error(Status(ErrorCode::kInvalidArgument, why), {.operation = "subset"});
  };
  std::vector<bool> is_named(static_cast<std::size_t>(size()), false);
  for (const Rank each : ranks) {
    if (each < 0 || each >= size()) {
      refuse("rank " + std::to_string(each) + " is not in a communicator of " +
             std::to_string(size()));
    }
    if (is_named[static_cast<std::size_t>(each)]) {
      refuse("rank " + std::to_string(each) + " is named twice");
    }
    is_named[static_cast<std::size_t>(each)] = true;
  }
  const auto self = std::find(ranks.begin(), ranks.end(), rank());
  if (self == ranks.end()) return split(-1);
  const auto place = static_cast<int>(self - ranks.begin());
  Result<std::shared_ptr<detail::CommunicatorState>> part = detail::split(*state_, 0, place, ranks);
  if (!part) throw Error(part.error(), {.operation = "subset"});
  return Communicator(std::move(*part));
}

void Communicator::abort(const std::string& reason) {
  if (state_ != nullptr && !state_->runtime().is_forked_copy()) state_->abort(reason);
}

void Communicator::close() {
  if (state_ == nullptr) return;
  if (state_->runtime().is_forked_copy()) return leave_to_parent(std::move(state_));
  const std::shared_ptr<detail::CommunicatorState> keep = state_;  // a callback may drop this one
  keep->close();
}

TrafficReport Communicator::traffic() const {
  if (state_ == nullptr || state_->runtime().is_forked_copy()) return TrafficReport();
  return state_->traffic();
}

std::string Communicator::explain(Collective collective, std::size_t bytes) const {
  return state_ == nullptr ? "" : state_->host().selection().explain(collective, bytes);
}

namespace {

// What a request refers to, while callbacks may end the request.
struct Kept {
  explicit Kept(const std::shared_ptr<detail::RequestState>& request)
      : communicator(request->communicator), state(request) {}
  std::shared_ptr<detail::CommunicatorState> communicator;
  std::shared_ptr<detail::RequestState> state;
};

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
  // The buffers are lent until the end, which the call's deadline bounds.
  state_->communicator->wait(*state_, kNever);
  const std::shared_ptr<detail::CommunicatorState> keep = state_->let_go();
  state_.reset();
}

bool Request::test() {
  if (state_ == nullptr || state_->communicator->runtime().is_forked_copy()) return true;
  const Kept kept(state_);
  return kept.communicator->test(*kept.state);
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
  state_->communicator->on_completion(*state_, std::move(callback));
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
    kept.communicator->wait(*kept.state, kNever);
    if (until_over != nullptr) until_over->reset();
  }
  kept.state->let_go();
}

void wait_all(std::span<Request> requests) {
  for (const Request& request : requests) {
    if (request.state_ == nullptr || request.state_->communicator->runtime().is_forked_copy()) {
      continue;
    }
    const Kept kept(request.state_);
    kept.communicator->wait(*kept.state, kNever);
  }
  for (Request& request : requests) request.wait();
}

// Requests of several jobs: each look moves all that its rank has, and between them the first one's
// rank waits for a moment.
std::size_t wait_any(std::span<Request> requests) {
  std::vector<Kept> kept;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].state_ == nullptr) continue;
    if (requests[i].state_->communicator->runtime().is_forked_copy()) return i;
    kept.emplace_back(requests[i].state_);
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
  std::vector<const std::atomic<bool>*> done;
  for (const Kept& each : kept) done.push_back(&each.state->done);
  constexpr std::chrono::milliseconds kBetweenLooks{1};
  for (;;) {
    for (std::size_t i = 0; i < kept.size(); ++i) {
      if (kept[i].communicator->test(*kept[i].state)) return places[i];
    }
    if (is_one_job) {
      kept.front().communicator->runtime().engine().wait_any(done);
    } else {
      const Kept& one = kept.front();
      one.communicator->wait(*one.state, later(Clock::now(), kBetweenLooks));
    }
  }
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
