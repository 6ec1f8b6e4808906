// Running calls: check, select, start, wait. Failures and time are in communicator_failure.cc.
#include "comm/communicator_state.h"

#include <algorithm>

namespace unisono::detail {
CommunicatorState::CommunicatorState(std::shared_ptr<Runtime> runtime, std::uint32_t id,
                                     std::vector<Rank> members, Rank rank,
                                     std::unique_ptr<native::Group> native)
    : runtime_(std::move(runtime)),
      members_(id, std::move(members), rank),
      host_({.engine = runtime_->engine(),
             .scratch = runtime_->scratch(),
             .members = members_,
             .circumstances = circumstances(native != nullptr),
             .group = std::move(native),
             .on_disagreement = [this](const Status& seen) { disagree(seen); }}),
      requests_([this](RequestState& request) { on_done(request); }),
      watchdog_(*runtime_, members_, host_),
      devices_(*this) {}

CallSelection::Circumstances CommunicatorState::circumstances(bool shared_memory) const {
  const std::vector<Rank>& ranks = members_.world_ranks();
  return {.table = runtime_->selection(),
          .hints = runtime_->algorithm_hints(),
          .ranks = size(),
          .link = shared_memory ? algorithms::Link::kShm : runtime_->link_of(ranks),
          .shared_cores = runtime_->shares_cores(ranks),
          .shared_memory = shared_memory,
          .access = runtime_->config().access};
}

void CommunicatorState::set_inside(int outer_size) {
  devices_.set_inside();
  host_.set_averaged_ranks(outer_size);
}

void CommunicatorState::enlist() {
  devices_.open();
  runtime_->engine().messenger().open(members_.id(), members_.world_ranks());
  runtime_->add(*this);
}

CommunicatorState::~CommunicatorState() { close(); }

Status CommunicatorState::usable() const {
  if (failure_.has_cause()) return failure();
  if (closed_) return Status(ErrorCode::kClosed, "the communicator was closed on this rank");
  return Status();
}

Status CommunicatorState::run(const Call& call, Received* received) {
  if ((devices_.exist() || call.options.stream) && devices_.needs(call)) {
    return run_with_devices({&call, 1}, received).status;
  }
  if (is_point_to_point(call.collective)) return run_group({&call, 1}, received).status;
  SharedMemoryBackend& memory = host_.shared_memory();
  if (memory.is_again(call)) {
    if (const std::optional<Status> outcome = run_again(call)) return *outcome;
  }
  UNISONO_TRY(usable());
  CallShape shape;
  UNISONO_TRY(check_call(call, rank(), size(), &shape));
  Engine& engine = runtime_->engine();
  RequestState* request = nullptr;
  bool unsent = false;
  {
    const Engine::Lock lock(engine);
    UNISONO_TRY(usable());
    const Selected selected = host_.selection().select(call, shape);
    if (*selected && (*selected)->algorithm == nullptr && memory.is_idle()) {
      UNISONO_ASSIGN(const auto begun,
                     memory.run(call, shape, host_.record_of(call), (*selected)->path));
      if (begun.outcome) return tell(*begun.outcome);
      request = &go_on(call, begun);
    } else {
      UNISONO_ASSIGN(request, admit(call, shape, selected));
      Task* const task = request;
      engine.start_and_linger({&task, 1});
      unsent = request->done.load(std::memory_order_relaxed) && engine.messenger().has_unsent();
    }
  }
  const bool only_sent = request->only_sends;
  const Status outcome = finish(*request);
  if (unsent) engine.flush();
  return only_sent && outcome.ok() ? look_at_peers() : outcome;
}

// A small call like the one before: nothing is checked or selected anew. None: it is not.
std::optional<Status> CommunicatorState::run_again(const Call& call) {
  RequestState* request = nullptr;
  {
    const Engine::Lock lock(runtime_->engine());
    UNISONO_TRY(usable());
    const auto again = host_.shared_memory().try_again(call);
    if (!again) return std::nullopt;
    if (again->outcome) return tell(*again->outcome);
    request = &go_on(call, *again);
  }
  return finish(*request);
}

// Of a call that had no request. Under the lock.
Status CommunicatorState::tell(const Status& outcome) {
  if (outcome.ok()) return outcome;
  fail(outcome, Tell::kEveryone);
  return failure();
}

// A request for what began without one. Under the lock.
RequestState& CommunicatorState::go_on(const Call& call,
                                       const SharedMemoryBackend::ShortCall& short_call) {
  RequestState& request = requests_.prepare(call);
  request.operation = host_.shared_memory().go_on(request, short_call);
  requests_.note_running(request);
  runtime_->engine().start(request);
  return request;
}

// Waits to the end and hands the request back to the pool.
Status CommunicatorState::finish(RequestState& request) {
  wait(request, kNever);
  const Status outcome = request.outcome;
  request.held = false;
  return outcome;
}

FirstFailure CommunicatorState::run_group(std::span<const Call> calls, Received* received) {
  if (std::any_of(calls.begin(), calls.end(),
                  [this](const Call& call) { return devices_.needs(call); })) {
    return run_with_devices(calls, received);
  }
  FirstFailure first;
  Engine& engine = runtime_->engine();
  bool unsent = false;
  std::vector<Task*> group;  // with the memory of the one before; callbacks may begin another
  {
    const Engine::Lock lock(engine);
    group = std::exchange(group_, {});
    group.clear();
    for (const Call& call : calls) {
      const Result<RequestState*> request =
          is_point_to_point(call.collective) ? admit_message(call) : check_and_admit(call);
      first.note(request.status(), call.collective, this);
      if (!request) break;
      if (*request != nullptr) group.push_back(*request);
    }
    engine.start_and_linger(group);
    unsent = engine.messenger().has_unsent();
  }
  std::optional<Collective> only_sent;
  for (Task* task : group) {
    RequestState& request = static_cast<RequestState&>(*task);
    if (request.only_sends) only_sent = request.call.collective;
    first.note(finish(request), request.call.collective, this);
    if (received != nullptr) *received = received_by(request, request.call);
  }
  group_ = std::move(group);
  if (unsent) engine.flush();
  if (only_sent && first.status.ok()) first.note(look_at_peers(), *only_sent, this);
  return first;
}

Received CommunicatorState::received_by(const RequestState& request, const Call& call) const {
  const TaggedResult& result = request.at_peers().message.result();
  return {members_.find(result.peer), result.tag, result.bytes / size_of(call.type)};
}

Result<RequestState*> CommunicatorState::check_and_admit(const Call& call) {
  CallShape shape;
  UNISONO_TRY(check_call(call, rank(), size(), &shape));
  return admit(call, shape, {});
}

// The request of a blocking send or receive; null when the call is already over.
Result<RequestState*> CommunicatorState::admit_message(const Call& call) {
  UNISONO_TRY(usable());
  if (!is_plain_message(call, size())) {
    CallShape shape;
    UNISONO_TRY(check_call(call, rank(), size(), &shape));
  }
  RequestState& request = requests_.acquire();
  host_.messages().start(request, call);
  if (call.collective == Collective::kSend && request.message.advance()) {
    request.held = false;
    host_.traffic().count_call(Collective::kSend);
    host_.traffic().count_sent(Collective::kSend, call.peer, call.count * size_of(call.type));
    return nullptr;
  }
  RequestPool::fill(request, call);
  request.operation = &request.message;
  requests_.note_running(request);
  return &request;
}

Result<std::shared_ptr<RequestState>> CommunicatorState::start(const Call& call) {
  const bool with_devices = devices_.needs(call);
  if (with_devices) UNISONO_TRY(devices_.await_turn(call));
  Result<std::shared_ptr<RequestState>> request = begin(call);
  if (!request) return request;
  if (with_devices && call.options.stream) await_enqueued(**request);
  if ((*request)->done.load(std::memory_order_acquire)) {
    runtime_->engine().flush();
    if ((*request)->at_peers().only_sends)
      static_cast<void>(look_at_peers());  // a failure is the next call's
  } else {
    runtime_->engine().wake_progress_thread();
  }
  return request;
}

// Checks and starts; nobody but the caller makes progress yet.
Result<std::shared_ptr<RequestState>> CommunicatorState::begin(const Call& call, bool in_group) {
  UNISONO_TRY(usable());
  CallShape shape;
  UNISONO_TRY(check_call(call, rank(), size(), &shape));
  const Engine::Lock lock(runtime_->engine());
  UNISONO_ASSIGN(RequestState* const request, admit(call, shape, {}, in_group));
  runtime_->engine().start(*request);
  request->refer(shared_from_this());
  std::shared_ptr<RequestState> shared = request->shared_from_this();
  request->held = false;
  return shared;
}

// Starts a checked call, which the engine is then to advance. Under the lock.
Result<RequestState*> CommunicatorState::admit(const Call& call, const CallShape& shape,
                                               const Selected& selected, bool in_group) {
  UNISONO_TRY(usable());
  RequestState* request = &requests_.prepare(call);
  RequestPool::copy_counts(*request);
  const Result<Operation*> started = devices_.concerns(call)
                                         ? devices_.start(*request, shape, in_group)
                                         : host_.start(*request, shape, selected);
  if (!started) {
    request->held = false;
    const Status& why = started.error();
    if (why.code() == ErrorCode::kInvalidArgument || why.code() == ErrorCode::kUnsupported) {
      return why;
    }
    // The other ranks are in this call and would wait for what never comes.
    fail(Status(why.code(), why.message(), rank()), Tell::kEveryone);
    return failure();
  }
  request->operation = *started;
  requests_.note_running(*request);
  return request;
}

// Under the lock, once per request, by whoever finishes it.
void CommunicatorState::on_done(RequestState& request) {
  requests_.note_ended(request);
  request.outcome = request.operation->status();
  if (request.outcome.ok()) host_.traffic().count_call(request.call.collective);
  if (!request.is_on_device()) host_.end(request, request.outcome.ok());
  request.outcome = outcome_of(request);
  request.failed.store(!request.outcome.ok(), std::memory_order_relaxed);
  request.enqueued.store(true, std::memory_order_release);
  if (request.callbacks == nullptr) return;
  runtime_->engine().defer(
      [callbacks = request.callbacks, outcome = request.outcome] { callbacks->finish(outcome); });
}

// As the caller hears of it. A failure ends the communicator, unless all ranks found it in the
// call.
Status CommunicatorState::outcome_of(RequestState& request) {
  if (!request.outcome) {
    if (request.concerns_call_alone) return request.outcome;
    if (!failure_.has_cause()) fail(request.outcome, Tell::kEveryone);
    return failure();
  }
  if (request.call.collective != Collective::kReceive) return Status();
  return host_.messages().check_received(request.call, request.at_peers().message.result());
}

void CommunicatorState::on_completion(RequestState& request,
                                      CompletionCallbacks::Callback callback) {
  std::shared_ptr<CompletionCallbacks> callbacks;
  std::optional<Status> outcome;
  {
    const Engine::Lock lock(runtime_->engine());
    const bool is_first = request.callbacks == nullptr;
    if (is_first) request.callbacks = std::make_shared<CompletionCallbacks>();
    callbacks = request.callbacks;  // a callback may end the request
    if (is_first && request.done.load(std::memory_order_relaxed)) outcome = request.outcome;
  }
  if (outcome) callbacks->finish(*outcome);
  callbacks->add(std::move(callback));
}

TrafficReport CommunicatorState::traffic() {
  const Engine::Lock lock(runtime_->engine());
  if (devices_.exist()) runtime_->engine().poll();  // what is over in its stream has ended
  host_.shared_memory().count_last();
  TrafficReport report = host_.traffic().report();
  devices_.add_traffic(&report);
  return report;
}

bool CommunicatorState::test(RequestState& request) {
  if (request.done.load(std::memory_order_acquire)) return true;
  runtime_->engine().beat();
  if (!request.done.load(std::memory_order_acquire)) return false;
  runtime_->engine().flush();
  return true;
}

bool CommunicatorState::wait(RequestState& request, TimePoint until) {
  if (request.done.load(std::memory_order_acquire)) return true;
  const bool in_time = runtime_->engine().wait(request, until);
  runtime_->engine().flush();
  return in_time;
}

// ---- Calls on device memory, and calls behind them ----------------------------------------------

FirstFailure CommunicatorState::run_with_devices(std::span<const Call> calls, Received* received) {
  std::vector<GroupedCall> grouped;
  for (const Call& call : calls) grouped.push_back({this, &call});
  return run_together(grouped, received);
}

bool CommunicatorState::has_calls_on_devices() const {
  return std::any_of(requests_.running().begin(), requests_.running().end(),
                     [](const RequestState* request) { return request->is_on_device(); });
}

void CommunicatorState::await_enqueued(RequestState& request) {
  if (request.is_on_device()) {
    runtime_->engine().wait(request.enqueued, kNever);
  } else {
    wait(request, kNever);
  }
}

// To the end of a blocking call: with a stream that is when its work is in there. The request goes
// on by itself then.
Status CommunicatorState::settle(RequestState& request, const Call& call) {
  if (call.options.stream) {
    await_enqueued(request);
  } else {
    wait(request, kNever);
  }
  if (request.failed.load(std::memory_order_relaxed)) wait(request, kNever);  // for the outcome
  Status outcome;
  if (request.done.load(std::memory_order_acquire)) outcome = request.outcome;
  request.let_go();
  return outcome;
}

// It starts as one of a group, whose gates close later, so that the library's own stream never
// waits at one.
Result<RequestState*> CommunicatorState::begin_inner(const Call& call) {
  UNISONO_TRY(usable());
  CallShape shape;
  UNISONO_TRY(check_call(call, rank(), size(), &shape));
  RequestState& request = requests_.prepare(call);
  RequestPool::copy_counts(request);
  const Result<Operation*> started = devices_.start(request, shape, true);
  if (!started) {
    request.held = false;
    return started.error();
  }
  request.operation = *started;
  requests_.note_running(request);
  runtime_->engine().start(request);
  return &request;
}

}  // namespace unisono::detail
