// How a communicator fails, is aborted and closed.
#include <sched.h>

#include <utility>

#include "base/grace_periods.h"
#include "comm/communicator_state.h"
#include "rendezvous/shrink_message.h"

namespace unisono::detail {
// A rank outside of calls hears here what the job has decided meanwhile.
Status CommunicatorState::status() {
  const Status suspicion = devices_.members_failure();
  if (failure().ok()) runtime_->engine().beat();
  if (suspicion.ok()) return failure();
  // The decision is on its way, and says more.
  const TimePoint limit = Clock::now() + grace::kCause;
  while (failure().ok() && Clock::now() < limit) {
    runtime_->engine().beat();
    sched_yield();
  }
  const Status told = failure();
  return told.ok() ? suspicion : told;
}

void CommunicatorState::fail(Status cause, Tell tell) {
  if (!failure_.set(cause)) return;
  devices_.end_replays(true);
  give_back_buffers(cause);
  devices_.fail(cause);
  if (tell == Tell::kEveryone && size() > 1) {
    runtime_->arbiter().report_failure(decision_of(cause));
  }
  const std::vector<RequestState*> running = requests_.running();
  for (RequestState* request : running) runtime_->engine().fail(*request, cause);
}

FailureDecision CommunicatorState::decision_of(const Status& cause) const {
  const Rank failed_rank = cause.rank() < 0 ? -1 : members_.world_rank(cause.rank());
  return {cause.code(), failed_rank, members_.id(), 0, cause.message()};
}

void CommunicatorState::disagree(const Status& seen) {
  if (!failure_.dispute(seen, Clock::now() + grace::kDecision)) return;
  runtime_->arbiter().report_differing(decision_of(seen), own_calls());
}

Status CommunicatorState::look_at_peers() {
  Engine& engine = runtime_->engine();
  for (;;) {
    engine.beat();
    {
      const Engine::Lock lock(engine);
      runtime_->news().tell_events();
      if (!failure_.is_disputed() || failure_.has_cause()) return failure();
    }
    sched_yield();
  }
}

// Nobody reads this rank's memory in place afterwards.
void CommunicatorState::give_back_buffers(const Status& cause) {
  if (native() == nullptr) return;
  native()->raise(cause.code(), cause.rank());
  native()->await_readers();
}

void CommunicatorState::abort(const std::string& reason) {
  const Engine::Lock lock(runtime_->engine());
  fail(Status(ErrorCode::kAborted, reason, rank()), Tell::kEveryone);
}

// Those that shrink it are not to wait for this rank.
void CommunicatorState::leave_survivors() {
  if (size() == 1) return;
  runtime_->arbiter().say_shrink(
      {rendezvous::ShrinkStep::kLeaves, members_.id(), 0, {}, members_.sorted_world_ranks(), {}});
}

void CommunicatorState::close() {
  devices_.drain();
  devices_.close_groups();
  bool last = false;
  {
    const Engine::Lock lock(runtime_->engine());
    if (closed_) return;
    closed_ = true;
    runtime_->note_close(!failure_.has_cause());
    if (failure_.has_cause()) leave_survivors();
    failure_.set(Status(ErrorCode::kClosed, "the communicator was closed on this rank"));
    devices_.end_replays(false);
    const std::vector<RequestState*> running = requests_.running();
    if (!running.empty()) give_back_buffers(Status(ErrorCode::kRankLeft, "", rank()));
    for (RequestState* request : running) runtime_->engine().fail(*request, failure());
    host_.shared_memory().count_last();
    host_.recorder().close();
    if (native() != nullptr) native()->leave();
    runtime_->engine().messenger().close(members_.id());
    last = runtime_->news().remove(*this);
  }
  host_.shared_memory().close();
  if (last) {
    runtime_->shut_down();
  } else {
    runtime_->engine().flush();
  }
}

void CommunicatorState::note_left(Rank member) {
  if (member >= 0) watchdog_.note_left(member);
}

// While nobody waits in this rank's calls it computes, whatever it has begun before.
void CommunicatorState::add_waits(std::vector<RunningWait>* waits) {
  if (!runtime_->engine().is_waited_in()) return;
  for (RequestState* request : requests_.running()) waits->push_back(watchdog_.wait_of(*request));
}

void CommunicatorState::tend(const std::vector<bool>& peer_left) {
  const DeviceCalls* const replayed = devices_.replayed();
  if (requests_.running().empty() && replayed == nullptr && !failure_.is_disputed()) return;
  const TimePoint now = Clock::now();
  const auto fail_of = [this](const Status& seen) {
    if (seen.ok()) return;
    // It may only follow from what the job is about to say.
    runtime_->news().catch_up();
    fail(seen, Tell::kEveryone);
  };
  if (replayed != nullptr) fail_of(watchdog_.look_at_replays(*replayed, now, peer_left));
  if (failure_.is_disputed()) {  // explains whatever else is missing meanwhile
    if (failure_.is_overdue(now)) fail(failure_.disputed(), Tell::kEveryone);
    return;
  }
  // A request ends here by a failure only, which ends them all.
  for (std::size_t i = 0; i < requests_.running().size() && !failure_.has_cause(); ++i) {
    fail_of(watchdog_.look_at(*requests_.running()[i], now, peer_left));
  }
}

Error CommunicatorState::error(const Status& status, std::string_view operation) const {
  Error::Context context;
  context.operation = std::string(operation);
  if (status.rank() >= 0 && status.rank() < size()) {
    const Rank failed = members_.world_rank(status.rank());
    context.host = runtime_->world().members[static_cast<std::size_t>(failed)].host_name;
    if (status.rank() != rank()) {
      context.link = algorithms::name_of(runtime_->link_of({members_.world_rank(rank()), failed}));
    }
  }
  return Error(status, context);
}

}  // namespace unisono::detail
