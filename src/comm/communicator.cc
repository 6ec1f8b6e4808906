// The public class over CommunicatorState: statuses become exceptions here.
#include "unisono/communicator.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <vector>

#include "backend/call_check.h"
#include "base/insist.h"
#include "base/per_process.h"
#include "comm/communicator_state.h"
#include "comm/grow.h"
#include "comm/member.h"
#include "comm/shrink.h"
#include "comm/split.h"

namespace unisono {
namespace {

// Of every state_ that there is. Calls do without, since their thread alone changes theirs: it is
// abort() that meets changes.
constinit PerProcess<std::mutex> changes;

// What was held.
std::shared_ptr<detail::CommunicatorState> change(
    std::shared_ptr<detail::CommunicatorState>& held,
    std::shared_ptr<detail::CommunicatorState> other) {
  const std::lock_guard lock(changes.get());
  held.swap(other);
  return other;
}

// Null where there is nothing that this process may abort.
std::shared_ptr<detail::CommunicatorState> keep_to_abort(
    const std::shared_ptr<detail::CommunicatorState>& held) {
  const std::lock_guard lock(changes.get());
  return held == nullptr || held->runtime().is_forked_copy() ? nullptr : held;
}

// Of a communicator that goes, where nobody hears of an error. Memory that is used up may be there
// again a moment later; what cannot be closed is leaked until exit, since peers know it still.
void close_for_good(Communicator& communicator,
                    const std::shared_ptr<detail::CommunicatorState>& state) noexcept {
  if (!insist([&] { communicator.close(); })) state->leak();
}

}  // namespace

namespace detail {

const Status kEmpty(ErrorCode::kNotMember,
                    "this rank is no member of the communicator (split() was called with a "
                    "negative color, or the communicator was moved from)");

const Status kInherited(ErrorCode::kNotMember,
                        "a forked child has no part in its parent's job: call init() in the child, "
                        "or fork before init()");

void refuse_member(bool is_empty, std::string_view operation) {
  throw Error(is_empty ? kEmpty : kInherited, {.operation = std::string(operation)});
}

}  // namespace detail

using detail::kEmpty;
using detail::kInherited;
using detail::member;

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
Communicator::Communicator(Communicator&& other) noexcept
    : Collectives(change(other.state_, nullptr)) {}
Communicator::Communicator(std::shared_ptr<detail::CommunicatorState> state)
    : Collectives(std::move(state)) {}

Communicator& Communicator::operator=(Communicator&& other) noexcept {
  if (this != &other) {
    close_for_good(*this, state_);
    change(state_, change(other.state_, nullptr));
  }
  return *this;
}

Communicator::~Communicator() { close_for_good(*this, state_); }

Rank Collectives::rank() const { return state_ == nullptr ? -1 : state_->rank(); }
int Collectives::size() const { return state_ == nullptr ? 0 : state_->size(); }
bool Communicator::empty() const { return state_ == nullptr; }

Status Communicator::status() const {
  const std::shared_ptr<detail::CommunicatorState> keep = state_;  // a callback may drop this one
  if (keep == nullptr) return kEmpty;
  return keep->runtime().is_forked_copy() ? kInherited : keep->status();
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

void Collectives::run(const Call& call) { member(state_, call.collective).run(call).raise(); }

Request Collectives::start(const Call& call) {
  std::shared_ptr<detail::RequestState> request;
  member(state_, call.collective).start(call, &request).raise();
  return Request(std::move(request));
}

Received Communicator::receive(void* data, std::size_t count, DataType type, Rank source, Tag tag,
                               const CallOptions& options) {
  const Call call{.collective = Collective::kReceive,
                  .out = data,
                  .count = count,
                  .type = type,
                  .peer = source,
                  .tag = tag,
                  .options = options};
  Received received;
  detail::run_together(member(state_, "receive"), {&call, 1}, &received).raise();
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
  detail::run_together(member(state_, "send_receive"), calls, &result).raise();
  return result;
}

void Communicator::group(std::span<const Call> calls) {
  detail::run_together(member(state_, "group"), calls, nullptr).raise();
}

Communicator Communicator::split(int color, int key) {
  const std::shared_ptr<detail::CommunicatorState> keep = state_;  // a callback may drop this one
  Result<std::shared_ptr<detail::CommunicatorState>> part =
      detail::split(member(keep, "split"), color, key);
  if (!part) throw keep->error(part.error(), "split");
  return Communicator(std::move(*part));
}

Communicator Communicator::subset(std::span<const Rank> ranks) {
  const std::shared_ptr<detail::CommunicatorState> keep = state_;  // a callback may drop this one
  member(keep, "subset");
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
  const bool is_in = self != ranks.end();
  const auto place = static_cast<int>(self - ranks.begin());
  Result<std::shared_ptr<detail::CommunicatorState>> part =
      is_in ? detail::split(*keep, 0, place, ranks) : detail::split(*keep, -1, 0);
  if (!part) throw keep->error(part.error(), "subset");
  return Communicator(std::move(*part));
}

Communicator Communicator::shrink(std::chrono::milliseconds timeout) {
  const std::shared_ptr<detail::CommunicatorState> keep = state_;  // a callback may drop this one
  Result<std::shared_ptr<detail::CommunicatorState>> left =
      detail::shrink(member(keep, "shrink"), timeout);
  if (!left) throw keep->error(left.error(), "shrink");
  return Communicator(std::move(*left));
}

Communicator Communicator::grow(Store& store, std::string_view name, const GrowOptions& options) {
  const std::shared_ptr<detail::CommunicatorState> keep = state_;  // a callback may drop this one
  Result<std::shared_ptr<detail::CommunicatorState>> grown =
      detail::grow(member(keep, "grow"), store, name, options);
  if (!grown) throw keep->error(grown.error(), "grow");
  return Communicator(std::move(*grown));
}

FailedIn Communicator::parent_failed_in() const {
  return state_ == nullptr ? FailedIn() : state_->parent_failed_in();
}

Communicator Communicator::grow(const GrowOptions& options) {
  const std::shared_ptr<detail::CommunicatorState> keep = state_;  // a callback may drop this one
  Result<std::shared_ptr<detail::CommunicatorState>> grown =
      detail::grow(member(keep, "grow"), options);
  if (!grown) throw keep->error(grown.error(), "grow");
  return Communicator(std::move(*grown));
}

void Communicator::abort(const std::string& reason) {
  const std::shared_ptr<detail::CommunicatorState> keep = keep_to_abort(state_);
  if (keep != nullptr) keep->abort(reason, keep->rank());
}

void Communicator::abort(const std::string& reason, Rank failed_rank) {
  const std::shared_ptr<detail::CommunicatorState> keep = keep_to_abort(state_);
  if (keep == nullptr) return;
  if (failed_rank < -1 || failed_rank >= keep->size()) {
    throw keep->error(Status(ErrorCode::kInvalidArgument,
                             "failed_rank " + std::to_string(failed_rank) + " is none of " +
                                 std::to_string(keep->size()) + " ranks, nor -1"),
                      "abort");
  }
  keep->abort(reason, failed_rank);
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

}  // namespace unisono
