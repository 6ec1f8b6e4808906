// What a program sees of a communicator's failure: its status, aborting and closing it.
#include <sched.h>

#include <utility>

#include "base/grace_periods.h"
#include "comm/communicator_state.h"

namespace unisono::detail {
// A rank outside of calls hears here what the job has decided meanwhile.
Status CommunicatorState::status() {
  const Status suspicion = devices_.members_failure();
  // Where memory was used up as a communicator failed, the others hear of it by the next beat.
  Engine& engine = runtime_->engine();
  if (failure().ok() || engine.is_watched()) engine.beat();
  if (suspicion.ok()) return failure();
  // The decision is on its way, and says more.
  const TimePoint limit = Clock::now() + grace::kCause;
  while (failure().ok() && Clock::now() < limit) {
    engine.beat();
    sched_yield();
  }
  const Status told = failure();
  return told.ok() ? suspicion : told;
}

Status CommunicatorState::look_at_peers() {
  Engine& engine = runtime_->engine();
  for (;;) {
    engine.beat();
    {
      const Engine::Lock lock(engine);
      runtime_->news().tell_events();
      if (!failure_.is_suspected() || failure_.has_cause()) return failure();
    }
    sched_yield();
  }
}

void CommunicatorState::abort(const std::string& reason, Rank failed_rank) {
  const Engine::Lock lock(runtime_->engine());
  fail(Status(ErrorCode::kAborted, reason, failed_rank), Tell::kEveryone);
}

void CommunicatorState::close() {
  devices_.drain();
  devices_.close_groups();
  bool last = false;
  {
    const Engine::Lock lock(runtime_->engine());
    if (closed()) return;
    const bool is_sound = !has_failed();
    last = close_here();
    runtime_->note_close(is_sound);
  }
  host_.shared_memory().close();
  if (last) {
    runtime_->shut_down();
  } else {
    runtime_->engine().flush();
  }
}

void CommunicatorState::on_failing(const Status& cause) {
  devices_.end_replays(true);
  give_back_buffers(cause);
  devices_.fail(cause);
}

void CommunicatorState::on_closing() { devices_.end_replays(false); }

// While nobody waits in this rank's calls it computes, whatever it has begun before.
void CommunicatorState::add_waits(std::vector<rendezvous::WaitMessage>* waits) {
  if (runtime_->engine().is_waited_in()) WatchedCommunicator::add_waits(waits);
}

void CommunicatorState::tend(const std::vector<bool>& peer_left) {
  if (const DeviceCalls* const replayed = devices_.replayed()) {
    fail_as_seen(watchdog_.look_at_replays(*replayed, now(), peer_left));
  }
  WatchedCommunicator::tend(peer_left);
}

Error CommunicatorState::error(const Status& status, std::string_view operation) const {
  Error::Context context;
  context.operation = std::string(operation);
  const bool concerns_call_alone =
      status.code() == ErrorCode::kInvalidArgument || status.code() == ErrorCode::kUnsupported;
  if (!concerns_call_alone) context.failed_in = failed_in();
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
