// The end of a communicator by its first failure, or by close().
#include <algorithm>
#include <new>
#include <utility>

#include "base/grace_periods.h"
#include "comm/watched_communicator.h"
#include "rendezvous/messages/shrink_message.h"

namespace unisono::detail {
namespace {

constexpr const char* kNoMemory = "no memory";  // takes none itself: it fits into a string

Status no_memory(Rank self) { return Status(ErrorCode::kOutOfResources, kNoMemory, self); }

}  // namespace

// The communicator fails with the call, if it had not before; the next beat tells the others.
void WatchedCommunicator::note_no_memory(RequestState& request) {
  if (failure_.set(no_memory(rank()), place(&request))) postpone(Tell::kEveryone);
  // The cause, which may be another's.
  request.outcome = failure_.in_brief(kNoMemory);
  give_back_buffers(request.outcome);  // they are the caller's once this is over
}

void WatchedCommunicator::fail(Status cause, Tell tell) { fail_by(nullptr, cause, tell); }

// `ending`: one that runs no more, or null.
FailedIn WatchedCommunicator::place(const RequestState* ending) const {
  FailedIn place{static_cast<std::int64_t>(host_.calls().next())};
  const auto take = [&](std::uint64_t number) {
    place = {std::min(place.number, static_cast<std::int64_t>(number)), true};
  };
  const auto take_request = [&](const RequestState& request) {
    if (is_point_to_point(request.call.collective)) return;
    const StartedCall& call = request.at_peers();
    if (request.is_on_device()) {
      if (call.first_sequence) take(*call.first_sequence);
    } else if (call.is_numbered) {
      take(call.sequence);
    }
  };
  for (const RequestState& request : requests_.running()) take_request(request);
  if (ending != nullptr) take_request(*ending);
  if (const auto short_call = host_.shared_memory().running_short_call()) take(*short_call);
  return place;
}

// `ending`: the call that fails it and runs no more, or null.
void WatchedCommunicator::fail_by(const RequestState* ending, const Status& cause, Tell tell) {
  if (failure_.has_cause()) return finish_failing();
  failure_.set(cause, place(ending));
  spread_failure(tell);
}

// Each step may be taken again.
void WatchedCommunicator::spread_failure(Tell tell) {
  try {
    const Status cause = failure();
    // First, so that the reason is on its way where members that share memory see that it failed.
    if (tell == Tell::kEveryone && size() > 1) around_.arbiter.report_failure(decision_of(cause));
    tell = Tell::kNobody;
    on_failing(cause);
    end_calls(cause);
  } catch (const std::bad_alloc&) {
    postpone(tell);
    throw;
  }
  drop_failing();
}

// Asks for beats until it is done, though nobody waits.
void WatchedCommunicator::postpone(Tell tell) {
  if (!unfinished_) around_.engine.watch();
  unfinished_ = tell;
}

void WatchedCommunicator::drop_failing() {
  if (std::exchange(unfinished_, std::nullopt)) around_.engine.unwatch();
}

void WatchedCommunicator::finish_failing() {
  if (unfinished_) spread_failure(*unfinished_);
}

// Takes no memory. Nobody reads their buffers any more. Members that share memory hear the cause.
void WatchedCommunicator::end_calls_briefly() {
  const Status brief = failure_.in_brief(kNoMemory);
  give_back_buffers(brief);
  end_calls(brief);
}

void WatchedCommunicator::end_calls(const Status& cause) {
  while (!requests_.running().empty()) around_.engine.fail(requests_.running().front(), cause);
}

void WatchedCommunicator::fail_without_memory() {
  try {
    fail(Status(ErrorCode::kOutOfResources,
                "rank " + std::to_string(rank()) + " has no memory left", rank()),
         Tell::kEveryone);
  } catch (const std::bad_alloc&) {
    if (failure_.set(no_memory(rank()), place(nullptr))) postpone(Tell::kEveryone);
  }
  end_calls_briefly();
}

FailureDecision WatchedCommunicator::decision_of(const Status& cause) const {
  const Rank failed_rank = cause.rank() < 0 ? -1 : members_.world_rank(cause.rank());
  return {cause.code(), failed_rank, members_.id(), 0, cause.message()};
}

void WatchedCommunicator::fail_part(std::uint32_t id, const Status& cause) {
  if (id == 0) return;
  FailureDecision decision = decision_of(cause);
  decision.communicator = id;
  decision.message = "the communicator that was split has failed: " + cause.message() +
                     " (ranks as that one numbers them)";
  // The arbiter tells of the dead itself, but only their own communicators.
  if (cause.code() == ErrorCode::kRankFailed) decision.failed_rank = -1;
  around_.arbiter.report_failure(decision);
}

void WatchedCommunicator::disagree(const Status& seen) {
  if (!failure_.suspect(seen, now() + grace::kDecision)) return;
  rendezvous::CallsMessage own = own_calls();
  own.suspicion = decision_of(seen);
  around_.arbiter.report_differing(own);
}

// Nobody reads this rank's memory in place afterwards.
void WatchedCommunicator::give_back_buffers(const Status& cause) {
  if (native() == nullptr) return;
  native()->raise(cause.code(), cause.rank());
  native()->await_readers();
}

// Those that shrink it are not to wait for this rank.
void WatchedCommunicator::leave_survivors() {
  if (size() == 1) return;
  around_.arbiter.say_shrink(
      {rendezvous::ShrinkStep::kLeaves, members_.id(), 0, {}, members_.sorted_world_ranks(), {}});
}

bool WatchedCommunicator::close_here() {
  closed_ = true;
  try {
    leave_job();
  } catch (const std::bad_alloc&) {
    closed_ = false;
    throw;
  }
  host_.shared_memory().count_last();
  host_.recorder().close();
  if (native() != nullptr) native()->leave();
  return around_.news.remove(*this);
}

// Not by close(), which may be asked again.
bool WatchedCommunicator::has_failed() const {
  return failure_.has_cause() && failure_.cause().code() != ErrorCode::kClosed;
}

// May be done again where memory was used up.
void WatchedCommunicator::leave_job() {
  finish_failing();
  if (has_failed()) leave_survivors();
  failure_.set(Status(ErrorCode::kClosed, "the communicator was closed on this rank"),
               place(nullptr));
  on_closing();
  // Others go on with what this rank has given. Who needs a message of it hears that it has left.
  const auto& running = requests_.running();
  const bool owes_a_part = std::any_of(running.begin(), running.end(), [](const auto& request) {
    return !is_point_to_point(request.call.collective);
  });
  if (owes_a_part) give_back_buffers(Status(ErrorCode::kRankLeft, "", rank()));
  end_calls(failure());
  around_.engine.messenger().close(members_.id());
}

void WatchedCommunicator::note_left(Rank member) {
  if (member >= 0) watchdog_.note_left(member);
}

void WatchedCommunicator::add_waits(std::vector<rendezvous::WaitMessage>* waits) {
  for (RequestState& request : requests_.running()) waits->push_back(watchdog_.wait_of(request));
}

void WatchedCommunicator::tend(const std::vector<bool>& peer_left) {
  try {
    finish_failing();
  } catch (const std::bad_alloc&) {
    return end_calls_briefly();  // the rest with the next beat; others have theirs to tend
  }
  if (requests_.running().empty() && !failure_.is_suspected()) return;
  const TimePoint at = now();
  try {
    look_after_calls(at, peer_left);
  } catch (const std::bad_alloc&) {
    const auto& running = requests_.running();
    const bool is_due = std::any_of(running.begin(), running.end(), [&](const auto& request) {
      return Watchdog::is_due(request, at);
    });
    if (!is_due) throw;
    fail_without_memory();
  }
}

void WatchedCommunicator::look_after_calls(TimePoint at, const std::vector<bool>& peer_left) {
  if (failure_.is_suspected()) {  // what is decided explains whatever else is missing meanwhile
    if (failure_.is_overdue(at)) fail(failure_.suspicion(), Tell::kEveryone);
    return;
  }
  for (RequestState& request : requests_.running()) watchdog_.begin(request, at);
  // A request ends here by a failure only, which ends them all.
  for (RequestState& request : requests_.running()) {
    fail_as_seen(watchdog_.look_at(request, at, peer_left));
    if (failure_.has_cause() || failure_.is_suspected()) return;
  }
}

void WatchedCommunicator::fail_as_seen(const Status& seen) {
  if (seen.ok() || failure_.is_suspected()) return;
  // It may only follow from what the job is about to say.
  around_.news.catch_up();
  // The arbiter was asked about deadlines.
  if (seen.code() == ErrorCode::kTimeout || around_.arbiter.is_lost()) {
    return fail(seen, Tell::kEveryone);
  }
  // Others may miss somebody else: what the arbiter hears first is what all hear.
  if (!failure_.suspect(seen, now() + grace::kDecision)) return;
  around_.arbiter.report_failure(decision_of(seen));
}

}  // namespace unisono::detail
