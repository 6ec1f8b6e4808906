// Running calls: check, select, start, wait. Failures and time are in communicator_failure.cc.
#include "comm/communicator_state.h"

#include <algorithm>
#include <new>

namespace unisono::detail {
namespace {

CallSelection::Circumstances circumstances(Runtime& runtime, const std::vector<Rank>& ranks,
                                           bool shared_memory) {
  return {.table = runtime.selection(),
          .hints = runtime.algorithm_hints(),
          .ranks = static_cast<int>(ranks.size()),
          .link = shared_memory ? algorithms::Link::kShm : runtime.link_of(ranks),
          .shared_cores = runtime.shares_cores(ranks),
          .shared_memory = shared_memory,
          .links = runtime.links_between(ranks),
          .access = runtime.config().access,
          .least_order = runtime.config().order};
}

}  // namespace

CommunicatorState::CommunicatorState(std::shared_ptr<Runtime> runtime, std::uint32_t id,
                                     std::vector<Rank> members, Rank rank,
                                     std::unique_ptr<native::Group> native)
    : WatchedCommunicator({.engine = runtime->engine(),
                           .scratch = runtime->scratch(),
                           .news = runtime->news(),
                           .arbiter = runtime->arbiter(),
                           .job = runtime->watched(),
                           .recorder = runtime->recorder()},
                          Members(id, members, rank),
                          circumstances(*runtime, members, native != nullptr), std::move(native)),
      runtime_(std::move(runtime)),
      devices_(*this) {}

void CommunicatorState::set_inside(int outer_size) {
  devices_.set_inside();
  host_.set_averaged_ranks(outer_size);
}

void CommunicatorState::enlist() {
  devices_.open();
  WatchedCommunicator::enlist();
}

CommunicatorState::~CommunicatorState() {
  try {
    close();
  } catch (const std::bad_alloc&) {
    // It was being made. Nobody here is to find it any more.
    const Engine::Lock lock(runtime_->engine());
    drop_failing();
    runtime_->news().remove(*this);
  }
}

FirstFailure CommunicatorState::run(const Call& call) {
  GroupedCall grouped{this, &call, devices_.concerns(call)};
  const bool on_host = !grouped.on_device && devices_.is_in_turn(call, false);
  if (!on_host || native() == nullptr || is_point_to_point(call.collective)) {
    return run_together({&grouped, 1}, nullptr);
  }
  HostBackends::Checked checked;
  grouped.checked = &checked;
  FirstFailure first;
  if (!try_run(grouped, &first)) first = run_together({&grouped, 1}, nullptr);
  return first;
}

// A collective of members that share memory, most often over without a request. False: it has not
// begun, or goes on with one.
bool CommunicatorState::try_run(GroupedCall& grouped, FirstFailure* first) {
  const Engine::Lock lock(runtime_->engine());
  try {
    return try_on_host(grouped, first);
  } catch (const std::bad_alloc&) {
    give_up(grouped);
    throw;
  }
}

// As try_run(), under the lock.
bool CommunicatorState::try_on_host(GroupedCall& grouped, FirstFailure* first) {
  Status failure = usable();
  const Tried tried =
      failure.ok() ? host_.try_run(*grouped.call, grouped.checked, &failure) : Tried::kRefused;
  switch (tried) {
    case Tried::kOver:
      return true;
    case Tried::kNotBegun:
      return false;
    case Tried::kGoesOn:
      go_on(grouped);
      return false;
    case Tried::kFailed:
      fail(naming_rank(failure), Tell::kEveryone);
      failure = this->failure();
      break;
    case Tried::kRefused:
      break;
  }
  first->note(failure, grouped.call->collective, *this);
  return true;
}

// Gives a call that was tried, and is not over, its request.
void CommunicatorState::go_on(GroupedCall& grouped) {
  grouped.kept = shared_from_this();
  RequestState& request = prepare(*grouped.call);
  grouped.request = note_begun(request, host_.go_on(request));
  grouped.has_begun = true;
  runtime_->engine().start(request);
  // Another thread may have ended all requests while this one gave the lock away.
  if (failure_.has_cause() && request.running) {
    runtime_->engine().fail(request, failure_.cause());
  }
}

FirstFailure CommunicatorState::start(const Call& call, std::shared_ptr<RequestState>* request) {
  GroupedCall grouped{this, &call, devices_.concerns(call), true};
  FirstFailure first = begin_together({&grouped, 1});
  if (!first.status) return first;
  *request = grouped.request->shared_from_this();
  (*request)->refer(std::move(grouped.kept));
  (*request)->held = false;
  return first;
}

void CommunicatorState::let_run(RequestState& request) {
  if (request.call.options.stream) await_enqueued(request);
  if (!request.done.load(std::memory_order_acquire)) {
    return runtime_->engine().wake_progress_thread();
  }
  runtime_->engine().flush();
  if (request.at_peers().only_sends) {
    static_cast<void>(look_at_peers());  // a failure is the next call's
  }
}

void CommunicatorState::give_up(GroupedCall& grouped) {
  fail_without_memory();
  if (grouped.request != nullptr) grouped.request->held = false;
}

Result<RequestState*> CommunicatorState::begin(const GroupedCall& grouped, bool in_group) {
  const bool is_message = is_point_to_point(grouped.call->collective) && !grouped.on_device;
  if (is_message && !grouped.is_asynchronous) return begin_message(grouped);
  return admit(grouped, {.in_group = in_group});
}

Result<RequestState*> CommunicatorState::begin_inner(const Call& call) {
  UNISONO_ASSIGN(RequestState* const request,
                 admit({this, &call, true, true}, {.in_group = true, .is_inner = true}));
  runtime_->engine().start(*request);
  return request;
}

// A request of a call that its backend has started, which the engine is then to advance. Under the
// lock.
Result<RequestState*> CommunicatorState::admit(const GroupedCall& grouped, const Admission& how) {
  UNISONO_TRY(usable());
  HostBackends::Checked own;
  HostBackends::Checked& checked = grouped.checked == nullptr ? own : *grouped.checked;
  if (!checked.choice) UNISONO_TRY(check_call(*grouped.call, rank(), size(), &checked.shape));
  RequestState& request = prepare(*grouped.call);
  RequestPool::copy_counts(request);
  request.in_group = how.in_group;
  request.is_asynchronous = grouped.is_asynchronous;
  const Result<Operation*> started =
      grouped.on_device ? devices_.start(request, checked.shape) : host_.start(request, checked);
  if (!started) return how.is_inner ? started.error() : not_started(started.error());
  return note_begun(request, *started);
}

// As admit(), for a send or receive of host memory. Null: it is over already.
Result<RequestState*> CommunicatorState::begin_message(const GroupedCall& grouped) {
  UNISONO_TRY(usable());
  const Call& call = *grouped.call;
  if (!is_plain_message(call, size())) {
    CallShape shape;
    UNISONO_TRY(check_call(call, rank(), size(), &shape));
  }
  // Looks move nothing else of this rank.
  const Engine& engine = runtime_->engine();
  const int looks = grouped.may_linger && !engine.is_running() ? engine.lingering_looks() : 1;
  return WatchedCommunicator::begin_message(call, looks);
}

void CommunicatorState::on_over(RequestState& request) {
  if (request.callbacks == nullptr) return;
  request.callbacks->end(request.outcome);
  runtime_->engine().defer(request.callbacks);
}

void CommunicatorState::on_completion(RequestState& request,
                                      CompletionCallbacks::Callback callback) {
  std::shared_ptr<CompletionCallbacks> callbacks;
  bool has_ended = false;
  {
    const Engine::Lock lock(runtime_->engine());
    const bool is_first = request.callbacks == nullptr;
    if (is_first) request.callbacks = std::make_shared<CompletionCallbacks>();
    callbacks = request.callbacks;  // a callback may end the request
    has_ended = is_first && request.done.load(std::memory_order_relaxed);
    if (has_ended) callbacks->end(request.outcome);
  }
  if (has_ended) call_back(callbacks);
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

bool CommunicatorState::has_calls_on_devices() const {
  return std::any_of(requests_.running().begin(), requests_.running().end(),
                     [](const RequestState& request) { return request.is_on_device(); });
}

// Of a call on a device nothing is flushed here: who has waited does that, or has the progress
// thread beat for what runs on.
void CommunicatorState::await_enqueued(RequestState& request) {
  if (request.is_on_device()) {
    runtime_->engine().wait(request.enqueued, kNever);
  } else {
    wait(request, kNever);
  }
}

Status CommunicatorState::settle(GroupedCall& grouped, Received* received) {
  RequestState& request = *grouped.request;
  const bool has_stream = grouped.call->options.stream.has_value();
  if (has_stream) {
    await_enqueued(request);
  } else {
    wait(request, kNever);
  }
  Status outcome;
  if (request.failed.load(std::memory_order_relaxed)) {
    wait(request, kNever);
    outcome = request.outcome;
  }
  if (!has_stream) {
    const StartedCall& at_peers = request.at_peers();
    grouped.only_sent = at_peers.only_sends;
    if (received != nullptr && grouped.call->collective == Collective::kReceive) {
      const TaggedResult& result = at_peers.message.result();
      *received = {members_.find(result.peer), result.tag,
                   result.bytes / size_of(grouped.call->type)};
    }
  }
  request.held = false;
  return outcome;
}

}  // namespace unisono::detail
