// Running calls: check, choose, launch, wait. Native ones are in communicator_native.cc, failures
// and time in communicator_failure.cc.
#include "comm/communicator_state.h"

#include <algorithm>
#include <cstring>

#include "base/traffic_count.h"

namespace unisono::detail {
namespace {

std::uint8_t hint_number(Collective collective, std::string_view hint) {
  if (hint.empty()) return 0;
  if (hint == "native") return 255;
  std::uint8_t number = 1;
  for (const algorithms::Algorithm& algorithm : algorithms::catalog()) {
    if (algorithm.collective != collective) continue;
    if (algorithm.name == hint) return number;
    ++number;
  }
  return 254;
}

}  // namespace

CommunicatorState::CommunicatorState(std::shared_ptr<Runtime> runtime, std::uint32_t id,
                                     std::vector<Rank> members, Rank rank,
                                     std::unique_ptr<native::Group> native)
    : runtime_(std::move(runtime)),
      id_(id),
      members_(std::move(members)),
      rank_(rank),
      native_calls_(std::move(native), traffic_),
      link_(this->native() != nullptr ? algorithms::Link::kShm : runtime_->link_of(members_)),
      shared_cores_(runtime_->shares_cores(members_)),
      sends_(members_.size(), 0),
      last_reduction_(size()),
      requests_([this](RequestState& request) { on_done(request); }),
      left_(members_.size(), false) {
  traffic_.by_peer.resize(members_.size());
}

void CommunicatorState::set_inside(int outer_size) {
  outer_size_ = outer_size;
  last_reduction_.set_ranks(averaged_ranks());
}

void CommunicatorState::enlist() {
  devices_ = DeviceCalls::make(*this);
  runtime_->engine().messenger().open(id_, members_);
  runtime_->add(*this);
}

CommunicatorState::~CommunicatorState() {
  close();
  host_groups_.reset();
  if (devices_ == nullptr) return;
  const Engine::Lock lock(runtime_->engine());
  devices_.reset();
}

Rank CommunicatorState::member_of(Rank world_rank) const {
  const auto found = std::find(members_.begin(), members_.end(), world_rank);
  return found == members_.end() ? -1 : static_cast<Rank>(found - members_.begin());
}

Status CommunicatorState::usable() const {
  if (failure_.has_cause()) return failure();
  if (closed_) return Status(ErrorCode::kClosed, "the communicator was closed on this rank");
  return Status();
}

std::string_view CommunicatorState::hint_for(const Call& call) const {
  return call.options.algorithm.empty()
             ? std::string_view(runtime_->algorithm_hint(call.collective))
             : call.options.algorithm;
}

CallRecord CommunicatorState::record_of(const Call& call) const {
  return make_record(call, calls_.digest(), hint_number(call.collective, hint_for(call)));
}

TimePoint CommunicatorState::deadline_of(const Call& call, TimePoint now) const {
  return later(
      now, call.options.timeout.count() > 0 ? call.options.timeout : runtime_->config().timeout);
}

Status CommunicatorState::run(const Call& call, Received* received) {
  if ((devices_ != nullptr || call.options.stream) && needs_devices(call)) {
    return run_with_devices({&call, 1}, nullptr, received);
  }
  if (is_point_to_point(call.collective)) return run_group({&call, 1}, nullptr, received);
  if (native_calls_.last().is_again(call)) {
    if (const std::optional<Status> outcome = run_again(call)) return *outcome;
  }
  UNISONO_TRY(usable());
  CallShape shape;
  UNISONO_TRY(check_call(call, rank_, size(), &shape));
  if (const Way way = way_of(call, shape); way.native) return run_native(call, shape, way.path);
  Engine& engine = runtime_->engine();
  RequestState* request = nullptr;
  bool unsent = false;
  {
    const Engine::Lock lock(engine);
    UNISONO_ASSIGN(request, admit(call, shape));
    Task* const task = request;
    engine.start_and_linger({&task, 1});
    unsent = request->done.load(std::memory_order_relaxed) && engine.messenger().has_unsent();
  }
  const bool only_sent = request->only_sends;
  const Status outcome = finish(*request);
  if (unsent) engine.flush();
  return only_sent && outcome.ok() ? look_at_peers() : outcome;
}

// Waits to the end and hands the request back to the pool.
Status CommunicatorState::finish(RequestState& request) {
  wait(request, kNever);
  const Status outcome = request.outcome;
  request.held = false;
  return outcome;
}

Status CommunicatorState::run_group(std::span<const Call> calls, Collective* failed,
                                    Received* received) {
  if (std::any_of(calls.begin(), calls.end(),
                  [this](const Call& call) { return needs_devices(call); })) {
    return run_with_devices(calls, failed, received);
  }
  FirstFailure first{failed, {}};
  Engine& engine = runtime_->engine();
  bool unsent = false;
  group_.clear();
  {
    const Engine::Lock lock(engine);
    for (const Call& call : calls) {
      const Result<RequestState*> request =
          is_point_to_point(call.collective) ? admit_message(call) : check_and_admit(call);
      first.note(request.status(), call.collective);
      if (!request) break;
      if (*request != nullptr) group_.push_back(*request);
    }
    engine.start_and_linger(group_);
    unsent = engine.messenger().has_unsent();
  }
  std::optional<Collective> only_sent;
  for (Task* task : group_) {
    RequestState& request = static_cast<RequestState&>(*task);
    if (request.only_sends) only_sent = request.call.collective;
    first.note(finish(request), request.call.collective);
    if (received != nullptr) *received = received_by(request, request.call);
  }
  group_.clear();
  if (unsent) engine.flush();
  if (only_sent && first.status.ok()) first.note(look_at_peers(), *only_sent);
  return first.status;
}

Received CommunicatorState::received_by(const RequestState& request, const Call& call) const {
  const TaggedResult& result = request.point_to_point.result();
  return {member_of(result.peer), result.tag, result.bytes / size_of(call.type)};
}

Result<RequestState*> CommunicatorState::check_and_admit(const Call& call) {
  CallShape shape;
  UNISONO_TRY(check_call(call, rank_, size(), &shape));
  return admit(call, shape);
}

// The request of a blocking send or receive; null when the call is already over.
Result<RequestState*> CommunicatorState::admit_message(const Call& call) {
  UNISONO_TRY(usable());
  if (!is_plain_message(call, size())) {
    CallShape shape;
    UNISONO_TRY(check_call(call, rank_, size(), &shape));
  }
  RequestState& request = requests_.acquire();
  launch_point_to_point(request, call);
  if (call.collective == Collective::kSend && request.point_to_point.advance()) {
    request.held = false;
    count_send(call);
    return nullptr;
  }
  RequestPool::fill(request, call);
  requests_.note_running(request);
  return &request;
}

Result<std::shared_ptr<RequestState>> CommunicatorState::start(const Call& call) {
  const bool with_devices = needs_devices(call);
  Result<std::shared_ptr<RequestState>> request =
      with_devices ? begin_in_turn(call, false) : begin(call);
  if (!request) return request;
  if (with_devices && call.options.stream) await_enqueued(**request);
  if ((*request)->done.load(std::memory_order_acquire)) {
    runtime_->engine().flush();
    if ((*request)->only_sends) static_cast<void>(look_at_peers());  // a failure is the next call's
  } else {
    runtime_->engine().wake_progress_thread();
  }
  return request;
}

// Checks and starts; nobody but the caller makes progress yet.
Result<std::shared_ptr<RequestState>> CommunicatorState::begin(const Call& call, bool in_group) {
  UNISONO_TRY(usable());
  CallShape shape;
  UNISONO_TRY(check_call(call, rank_, size(), &shape));
  const Engine::Lock lock(runtime_->engine());
  begins_group_ = in_group;
  const Result<RequestState*> admitted = admit(call, shape);
  begins_group_ = false;
  UNISONO_TRY(admitted.status());
  RequestState* const request = *admitted;
  runtime_->engine().start(*request);
  request->communicator = shared_from_this();
  std::shared_ptr<RequestState> shared = request->shared_from_this();
  request->held = false;
  return shared;
}

// Makes a checked call's operation, which the engine is then to start. Under the lock.
Result<RequestState*> CommunicatorState::admit(const Call& call, const CallShape& shape) {
  UNISONO_TRY(usable());
  RequestState* request = &requests_.prepare(call);
  RequestPool::copy_counts(*request);
  const Status launched =
      concerns_devices(call) ? launch_on_device(*request, shape) : launch_on_host(*request, shape);
  if (!launched) {
    request->held = false;
    const ErrorCode code = launched.code();
    if (code == ErrorCode::kInvalidArgument || code == ErrorCode::kUnsupported) return launched;
    // The other ranks are in this call and would wait for what never comes.
    fail(Status(code, launched.message(), rank_), Tell::kEveryone);
    return failure();
  }
  requests_.note_running(*request);
  return request;
}

// Makes the request's operation.
Status CommunicatorState::launch_on_host(RequestState& request, const CallShape& shape) {
  if (is_point_to_point(request.call.collective)) {
    launch_point_to_point(request, request.call);
    return Status();
  }
  if (reduces(request.call.collective)) {
    UNISONO_ASSIGN(request.reduction,
                   compute::Reduction::make(request.call.type, request.call.op, averaged_ranks()));
  }
  if (const Way way = way_of(request.call, shape); way.native) {
    return launch_native(request, way.path);
  }
  UNISONO_ASSIGN(const algorithms::Choice choice, choose(request.call, shape));
  return choice.algorithm == nullptr
             ? launch_native(request, choice.path)
             : launch_plan(request, request.call, shape, choice, record_of(request.call));
}

Status CommunicatorState::launch_plan(RequestState& request, const Call& call,
                                      const CallShape& shape, const algorithms::Choice& choice,
                                      const CallRecord& record) {
  if (request.execution == nullptr) {
    request.execution =
        std::make_unique<Execution>(runtime_->engine().messenger(), runtime_->scratch());
  }
  // A prepared input lies in scratch memory and not where the caller has it.
  const bool in_place = shape.in_place && !(request.reduction && request.reduction->prepares());
  PlanCache::Entry& entry =
      plans_.get(call, *choice.algorithm, choice.chunks, in_place, rank_, size());
  Execution::Call execution;
  execution.plan = &entry.plan;
  execution.input = call.in;
  execution.output = call.out;
  execution.reduction = request.reduction ? &*request.reduction : nullptr;
  execution.finish_bytes = reduces(call.collective) ? shape.output_bytes : 0;
  execution.communicator = id_;
  execution.sequence = calls_.next();
  execution.record = record;
  execution.world_ranks = &members_;
  UNISONO_TRY(request.execution->begin(execution));
  request.sequence = calls_.add(record);
  request.is_numbered = true;
  request.record = record;
  request.plan = &entry;
  request.only_sends = entry.plan.only_sends;
  ++entry.in_use;
  request.operation = request.execution.get();
  runtime_->engine().messenger().compare_call(id_, request.sequence, record);
  return Status();
}

void CommunicatorState::launch_point_to_point(RequestState& request, const Call& call) {
  Messenger& messenger = runtime_->engine().messenger();
  const std::size_t bytes = call.count * size_of(call.type);
  const bool any = call.root == kAnyRank;
  const Rank peer = any ? kAnyRank : members_[static_cast<std::size_t>(call.root)];
  MessageKey key{id_, FrameClass::kPointToPoint, call.tag, 0};
  if (call.collective == Collective::kSend) {
    key.sequence = sends_[static_cast<std::size_t>(call.root)]++;
    request.record = make_record(call, 0, 0);
    request.point_to_point.begin_send(messenger, peer, call.root, key, request.record,
                                      {static_cast<const std::byte*>(call.in), bytes});
  } else {
    request.record = make_record(call, 0, 0);
    request.point_to_point.begin_receive(messenger, peer, call.root, key,
                                         {static_cast<std::byte*>(call.out), bytes});
  }
  request.sequence = key.sequence;
  request.operation = &request.point_to_point;
}

// Under the lock, once per request, by whoever finishes it.
void CommunicatorState::on_done(RequestState& request) {
  requests_.note_ended(request);
  request.outcome = request.operation->status();
  if (request.outcome.ok()) count(request);
  if (request.plan != nullptr) --request.plan->in_use;
  request.plan = nullptr;
  if (!request.outcome && request.concerns_call_alone) return;
  if (!request.outcome) {
    if (!failure_.has_cause()) fail(request.outcome, Tell::kEveryone);
    request.outcome = failure();
    return;
  }
  if (request.call.collective == Collective::kReceive) request.outcome = check_received(request);
}

// What is wrong with a message that has come is the receive's alone.
Status CommunicatorState::check_received(const RequestState& request) const {
  const TaggedResult& result = request.point_to_point.result();
  const std::size_t element_bytes = size_of(request.call.type);
  const std::size_t room = request.call.count * element_bytes;
  const bool fits = result.bytes <= room;
  if (fits && result.bytes % element_bytes == 0) return Status();
  const Rank sender = member_of(result.peer);
  const std::string message = "the message of rank " + std::to_string(sender) + " with tag " +
                              std::to_string(result.tag) + " has " + std::to_string(result.bytes) +
                              " bytes and ";
  const std::string type(name_of(request.call.type));
  return Status(
      ErrorCode::kInvalidArgument,
      fits ? message + "that is no whole number of " + type + " elements of " +
                 std::to_string(element_bytes) + " bytes; receive it as what it was sent as"
           : message + "the room is " + std::to_string(room) + "; the message was dropped",
      sender);
}

// A native call has counted itself while it was the group's.
void CommunicatorState::count(const RequestState& request) {
  const Collective collective = request.call.collective;
  if (collective == Collective::kSend) return count_send(request.call);
  ++traffic_.calls[static_cast<std::size_t>(collective)];
  if (collective == Collective::kReceive) {
    const TaggedResult& got = request.point_to_point.result();
    count_received(collective, member_of(got.peer), got.bytes, &traffic_);
  } else {
    count_plan(request);
  }
}

void CommunicatorState::count_plan(const RequestState& request) {
  if (request.plan == nullptr) return;
  for (const PlannedMessage& message : request.plan->plan.messages) {
    const auto count_one = message.sent ? count_sent : count_received;
    count_one(request.call.collective, message.peer, message.bytes, &traffic_, 1);
  }
}

void CommunicatorState::count_send(const Call& call) {
  ++traffic_.calls[static_cast<std::size_t>(Collective::kSend)];
  count_sent(Collective::kSend, call.root, call.count * size_of(call.type), &traffic_);
}

TrafficReport CommunicatorState::traffic() {
  const Engine::Lock lock(runtime_->engine());
  if (devices_ != nullptr) runtime_->engine().poll();  // what is over in its stream has ended
  native_calls_.count_last();
  TrafficReport report = traffic_;
  if (host_groups_ != nullptr) host_groups_->add_traffic(&report);
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

algorithms::SelectionRequest CommunicatorState::selection_request(Collective collective,
                                                                  std::size_t bytes) const {
  return {.collective = collective,
          .ranks = size(),
          .bytes = bytes,
          .link = link_,
          .shared_cores = shared_cores_,
          .native = native() != nullptr,
          .access = runtime_->config().access};
}

Result<algorithms::Choice> CommunicatorState::choose(const Call& call,
                                                     const CallShape& shape) const {
  algorithms::SelectionRequest request = selection_request(call.collective, shape.agreed_bytes);
  request.commutative = call.op.kind != OpKind::kUser || call.op.commutative;
  request.order = call.options.order;
  return runtime_->selection().choose(request, hint_for(call));
}

Result<algorithms::Choice> CommunicatorState::choose_for(Collective collective, std::size_t bytes,
                                                         std::string_view hint) const {
  return runtime_->selection().choose(
      selection_request(collective, facts_of(collective).has_agreed_lengths() ? bytes : 0),
      hint.empty() ? std::string_view(runtime_->algorithm_hint(collective)) : hint);
}

std::string CommunicatorState::explain(Collective collective, std::size_t bytes) const {
  return runtime_->selection().explain(selection_request(collective, bytes), "");
}

}  // namespace unisono::detail
