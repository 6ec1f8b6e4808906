// How a communicator fails, times out, is aborted and closed.
#include <sched.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "comm/communicator_state.h"
#include "comm/grace_periods.h"

namespace unisono::detail {
namespace {

std::string list_of(const std::vector<Rank>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") + std::to_string(ranks[i]);
  }
  return text.empty() ? "none" : text;
}

}  // namespace

// The verdict is on its way, and says more.
Status CommunicatorState::status() {
  const Status suspicion = devices_ == nullptr ? Status() : devices_->members_failure();
  if (suspicion.ok()) return failure();
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
  end_replays(true);
  give_back_buffers(cause);
  if (host_groups_ != nullptr) host_groups_->fail(cause);
  if (tell == Tell::kEveryone && size() > 1) {
    runtime_->arbiter().report_failure(verdict_of(cause));
  }
  const std::vector<RequestState*> running = requests_.running();
  for (RequestState* request : running) runtime_->engine().fail(*request, cause);
}

Verdict CommunicatorState::verdict_of(const Status& cause) const {
  const Rank culprit = cause.rank() < 0 ? -1 : members_[static_cast<std::size_t>(cause.rank())];
  return {cause.code(), culprit, id_, 0, cause.message()};
}

void CommunicatorState::disagree(const Status& seen) {
  if (!failure_.dispute(seen, Clock::now() + grace::kDecision)) return;
  runtime_->arbiter().report_differing(verdict_of(seen), own_calls());
}

// After a blocking call that waited for nobody: what the peers have said meanwhile would else be
// heard by the next call that waits.
Status CommunicatorState::look_at_peers() {
  Engine& engine = runtime_->engine();
  for (;;) {
    engine.beat();
    {
      const Engine::Lock lock(engine);
      runtime_->handle_events();
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
  if (!closed_) fail(Status(ErrorCode::kAborted, reason, rank_), Tell::kEveryone);
}

void CommunicatorState::close() {
  if (devices_ != nullptr) drain_devices();
  close_host_groups();
  bool last = false;
  {
    const Engine::Lock lock(runtime_->engine());
    if (closed_) return;
    closed_ = true;
    failure_.set(Status(ErrorCode::kClosed, "the communicator was closed on this rank"));
    end_replays(false);
    const std::vector<RequestState*> running = requests_.running();
    if (!running.empty()) give_back_buffers(Status(ErrorCode::kRankLeft, "", rank_));
    for (RequestState* request : running) runtime_->engine().fail(*request, failure());
    native_calls_.count_last();
    if (native() != nullptr) native()->leave();
    runtime_->engine().messenger().close(id_);
    last = runtime_->remove(*this);
  }
  native_calls_.close();
  if (last) {
    runtime_->shut_down();
  } else {
    runtime_->engine().flush();
  }
}

void CommunicatorState::note_left(Rank member) {
  if (member >= 0) left_[static_cast<std::size_t>(member)] = true;
}

void CommunicatorState::tend(const std::vector<bool>& peer_left) {
  if (watches_replays_) tend_replays(peer_left);
  if (requests_.running().empty() && !failure_.is_disputed()) return;
  const TimePoint now = Clock::now();
  if (failure_.is_disputed()) {  // explains whatever else is missing meanwhile
    if (failure_.is_overdue(now)) fail(failure_.disputed(), Tell::kEveryone);
    return;
  }
  // A request ends here by a failure only, which ends them all.
  for (std::size_t i = 0; i < requests_.running().size(); ++i) {
    if (failure_.has_cause()) return;
    tend_request(*requests_.running()[i], now, peer_left);
  }
}

// What a member sent before it left may still be on its way here: that it is still waited for
// counts only after a while. The shared flag of native calls runs ahead of the lanes; plans are
// told by their probes instead.
bool CommunicatorState::has_gone(Rank member, bool asks_native,
                                 const std::vector<bool>& peer_left) const {
  const auto index = static_cast<std::size_t>(member);
  return left_[index] || peer_left[static_cast<std::size_t>(members_[index])] ||
         (asks_native && native() != nullptr && native()->has_left(member));
}

Rank CommunicatorState::first_gone(const std::vector<Rank>& waiting, bool asks_native,
                                   const std::vector<bool>& peer_left) const {
  const auto gone = std::find_if(waiting.begin(), waiting.end(), [&](Rank member) {
    return has_gone(member, asks_native, peer_left);
  });
  return gone == waiting.end() ? -1 : *gone;
}

// What waits for any rank is lost only when all have left: one of them then.
Rank CommunicatorState::last_gone(const std::vector<bool>& peer_left) const {
  Rank gone = -1;
  for (Rank member = 0; member < size(); ++member) {
    if (member == rank_) continue;
    if (!has_gone(member, true, peer_left)) return -1;
    gone = member;
  }
  return gone;
}

// Since when a member is missed that has left. True when that has been so for long enough.
bool CommunicatorState::misses(Rank gone, TimePoint* since) {
  if (gone < 0) {
    *since = {};
    return false;
  }
  const TimePoint now = Clock::now();
  if (*since == TimePoint{}) *since = now;
  return now - *since >= grace::kAfterGoodbye;
}

void CommunicatorState::fail_without(Rank gone, const std::string& what) {
  fail(Status(
           ErrorCode::kRankLeft,
           "rank " + std::to_string(gone) + " has closed the communicator and is needed by " + what,
           gone),
       Tell::kEveryone);
}

void CommunicatorState::watch_replays() {
  if (std::exchange(watches_replays_, true)) return;
  runtime_->engine().watch();
}

// Who launches a graph later gets through it as well.
void CommunicatorState::end_replays(bool failed) {
  if (!std::exchange(watches_replays_, false)) return;
  runtime_->engine().unwatch();
  devices_->end_replays(failed);
}

// Nothing is looked at while all are there.
void CommunicatorState::tend_replays(const std::vector<bool>& peer_left) {
  waiting_.clear();
  bool some_left = false;
  for (Rank member = 0; member < size(); ++member) {
    some_left = some_left || has_gone(member, true, peer_left);
  }
  if (some_left) devices_->replays_wait_for(&waiting_);
  const Rank gone = first_gone(waiting_, true, peer_left);
  if (misses(gone, &replays_miss_since_)) fail_without(gone, "a replay of a CUDA graph");
}

void CommunicatorState::tend_request(RequestState& request, TimePoint now,
                                     const std::vector<bool>& peer_left) {
  if (request.began == TimePoint{}) {
    request.began = now;
    request.deadline = deadline_of(request.call, now);
  }
  if (now - request.began < grace::kProbeAfter && now < request.deadline) return;
  std::vector<Rank>& waiting = waiting_;
  waiting.clear();
  request.operation->waiting_for(&waiting);
  const bool for_any = std::erase(waiting, kAnyRank) > 0;
  const Rank gone =
      for_any ? last_gone(peer_left) : first_gone(waiting, request.plan == nullptr, peer_left);
  if (misses(gone, &request.gone_since)) {
    return fail_without(gone, unisono::describe(request.record, request.sequence));
  }
  const bool collective = !is_point_to_point(request.call.collective);
  if (!request.probed && collective && request.is_numbered) {
    request.probed = true;
    probe_peers(request, waiting);
  }
  if (!request.reported && request.is_numbered && now - request.began >= grace::kReportAfter) {
    request.reported = true;
    std::vector<Rank> world;
    for (const Rank member : waiting) world.push_back(members_[static_cast<std::size_t>(member)]);
    runtime_->arbiter().report_waiting(id_, collective ? request.sequence : kPointToPointSequence,
                                       world);
  }
  if (!request.warned && now - request.began >= runtime_->config().warn_after) {
    request.warned = true;
    log::warning("rank " + std::to_string(rank_) + " waits in " +
                 unisono::describe(request.record, request.sequence) + "; " +
                 arrival_text(waiting));
  }
  if (now >= request.deadline) time_out(request, now, waiting);
}

// Makes peers that are in another call notice, and this rank notice what they said. A call without
// a plan, native or in the streams of a device, sends nothing itself, but a peer may have taken a
// plan for it.
void CommunicatorState::probe_peers(const RequestState& request, const std::vector<Rank>& waiting) {
  Messenger& messenger = runtime_->engine().messenger();
  if (request.plan == nullptr) {
    messenger.compare_call(id_, request.sequence, request.record);
    return;
  }
  for (const Rank member : waiting) {
    messenger.probe(members_[static_cast<std::size_t>(member)], id_, request.sequence,
                    request.record);
  }
}

std::string CommunicatorState::arrival_text(const std::vector<Rank>& waiting) {
  return "waiting for " + std::string(waiting.size() == 1 ? "rank " : "ranks ") + list_of(waiting);
}

// The arbiter is asked first: it has heard from the other ranks too.
void CommunicatorState::time_out(RequestState& request, TimePoint now,
                                 const std::vector<Rank>& waiting) {
  const Rank culprit = waiting.size() == 1 ? waiting.front() : -1;
  if (!request.timed_out && request.is_numbered && !is_point_to_point(request.call.collective) &&
      size() > 1) {
    request.timed_out = true;
    request.deadline = now + grace::kDecision;
    std::vector<Rank> world;
    for (const Rank member : waiting) world.push_back(members_[static_cast<std::size_t>(member)]);
    runtime_->arbiter().report_timeout(id_, request.sequence, world, members_);
    return;
  }
  fail(Status(ErrorCode::kTimeout,
              unisono::describe(request.record, request.sequence) +
                  " did not finish within its deadline; " + arrival_text(waiting),
              culprit),
       Tell::kEveryone);
}

Error CommunicatorState::error(const Status& status, Collective collective) const {
  Error::Context context;
  context.operation = std::string(name_of(collective));
  if (status.rank() >= 0 && status.rank() < size()) {
    context.host =
        runtime_->world()
            .members[static_cast<std::size_t>(members_[static_cast<std::size_t>(status.rank())])]
            .host_name;
    context.link = algorithms::name_of(link_);
  }
  return Error(status, context);
}

}  // namespace unisono::detail
