// A communicator's calls under the watchdog. Failures are in watched_communicator_failure.cc.
#include "comm/watched_communicator.h"

#include <new>
#include <utility>

namespace unisono::detail {

WatchedCommunicator::WatchedCommunicator(const Surroundings& around, Members members,
                                         CallSelection::Circumstances circumstances,
                                         std::unique_ptr<native::Group>&& group)
    : around_(around),
      members_(std::move(members)),
      host_({.engine = around.engine,
             .scratch = around.scratch,
             .members = members_,
             .circumstances = std::move(circumstances),
             .group = std::move(group),
             .on_disagreement = [this](const Status& seen) { disagree(seen); },
             .recorder = around.recorder}),
      requests_([this](RequestState& request) { on_done(request); }),
      watchdog_(around.job, members_, host_) {}

void WatchedCommunicator::enlist() {
  host_.recorder().open(size(), rank());
  around_.engine.messenger().open(members_.id(), members_.world_ranks());
  around_.news.add(*this);
}

RequestState& WatchedCommunicator::prepare(const Call& call) {
  RequestState& request = requests_.prepare(call);
  request.call.options.order = host_.selection().order_of(call);
  return request;
}

RequestState* WatchedCommunicator::note_begun(RequestState& request, Operation* operation) {
  request.operation = operation;
  if (request.recorded == 0) {
    request.recorded = host_.recorder().begin(request.operation_for_record());
  }
  requests_.note_running(request);
  return &request;
}

// The other ranks are in this call and would wait for what never comes, unless all refuse it.
Status WatchedCommunicator::not_started(const Status& why) {
  if (why.code() == ErrorCode::kInvalidArgument || why.code() == ErrorCode::kUnsupported) {
    return why;
  }
  fail(Status(why.code(), why.message(), rank()), Tell::kEveryone);
  return failure();
}

// What this rank has none of is missing here, whoever's memory it is wanted for.
Status WatchedCommunicator::naming_rank(const Status& cause) const {
  const bool is_own = cause.rank() < 0 && cause.code() == ErrorCode::kOutOfResources;
  return is_own ? Status(cause.code(), cause.message(), rank()) : cause;
}

RequestState* WatchedCommunicator::begin_message(const Call& call, int looks) {
  if (call.collective == Collective::kReceive && host_.messages().try_receive(call, looks)) {
    return nullptr;
  }
  RequestState& request = requests_.acquire();
  if (host_.messages().try_run(request, call) == Tried::kOver) return nullptr;
  RequestPool::fill(request, call);
  return note_begun(request, host_.messages().go_on(request));
}

// Once per request, by whoever finishes it. What memory is lacking for must not keep it from being
// over.
void WatchedCommunicator::on_done(RequestState& request) noexcept {
  requests_.note_ended(request);
  bool succeeded = false;
  try {
    succeeded = note_outcome(request);
    if (succeeded && request.notes.timed_out) watchdog_.withdraw_timeout(request);
  } catch (const std::bad_alloc&) {
    note_no_memory(request);
    succeeded = false;
  }
  if (succeeded) host_.traffic().count_call(request.call.collective);
  request.backend->end(request, succeeded);
  try {
    if (!succeeded) request.outcome = outcome_of(request);
  } catch (const std::bad_alloc&) {
    note_no_memory(request);
  }
  host_.recorder().end(request.recorded, request.outcome, request.concerns_call_alone);
  request.failed.store(!succeeded, std::memory_order_relaxed);
  request.enqueued.store(true, std::memory_order_release);
  on_over(request);
}

// False where the call has failed; its outcome says why then.
bool WatchedCommunicator::note_outcome(RequestState& request) {
  if (!request.operation->status().ok()) {
    request.outcome = request.operation->status();
    return false;
  }
  if (request.call.collective != Collective::kReceive) return true;
  Status seen = host_.messages().check_received(request.call, request.at_peers().message.result());
  if (seen.ok()) return true;
  request.outcome = std::move(seen);
  request.concerns_call_alone = true;
  return false;
}

// Of a failed call, as the caller hears of it: the failure ends the communicator, unless all ranks
// found it in the call.
Status WatchedCommunicator::outcome_of(RequestState& request) {
  if (request.concerns_call_alone) return request.outcome;
  if (!failure_.has_cause()) fail_by(&request, naming_rank(request.outcome), Tell::kEveryone);
  return failure();
}

}  // namespace unisono::detail
