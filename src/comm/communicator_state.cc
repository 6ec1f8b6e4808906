// Running calls: check, choose, launch, wait. Failures and time are in communicator_failure.cc.
#include "comm/communicator_state.h"

#include <algorithm>
#include <cstring>

#include "base/traffic_count.h"

namespace unisono::detail {
namespace {

// Looks of the blocking native path before it hands over to the engine's wait.
constexpr int kNativeLooks = 2000;
// The same where every look that fails gives the core to another rank.
constexpr int kNativeYields = 32;

bool same_op(const ReduceOp& a, const ReduceOp& b) {
  return a.kind == b.kind && a.scalar == b.scalar && a.function == b.function &&
         a.context == b.context && a.name == b.name && a.commutative == b.commutative;
}

bool has_no_counts(const Call& call) {
  return call.in_counts.empty() && call.in_displacements.empty() && call.out_counts.empty() &&
         call.out_displacements.empty();
}

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
      native_(std::move(native)),
      link_(native_ != nullptr ? algorithms::Link::kShm : runtime_->link_of(members_)),
      shared_cores_(runtime_->shares_cores(members_)),
      sends_(members_.size(), 0),
      left_(members_.size(), false) {
  traffic_.by_peer.resize(members_.size());
  const Engine::Lock lock(runtime_->engine());
  runtime_->add(*this);
}

CommunicatorState::~CommunicatorState() { close(); }

Rank CommunicatorState::member_of(Rank world_rank) const {
  const auto found = std::find(members_.begin(), members_.end(), world_rank);
  return found == members_.end() ? -1 : static_cast<Rank>(found - members_.begin());
}

Status CommunicatorState::usable() const {
  if (failed_.load(std::memory_order_acquire)) return failure();
  if (closed_) return Status(ErrorCode::kClosed, "the communicator was closed on this rank");
  return Status();
}

std::string_view CommunicatorState::hint_for(const Call& call) const {
  return call.options.algorithm.empty()
             ? std::string_view(runtime_->algorithm_hint(call.collective))
             : call.options.algorithm;
}

TimePoint CommunicatorState::deadline_of(const Call& call, TimePoint now) const {
  return later(
      now, call.options.timeout.count() > 0 ? call.options.timeout : runtime_->config().timeout);
}

const compute::Reduction* CommunicatorState::reduction_for(const Call& call, Status* status) {
  if (last_reduction_ && last_type_ == call.type && same_op(last_op_, call.op)) {
    return &*last_reduction_;
  }
  Result<compute::Reduction> made = compute::Reduction::make(call.type, call.op, size());
  if (!made) {
    *status = made.error();
    return nullptr;
  }
  last_reduction_ = *made;
  last_type_ = call.type;
  last_op_ = call.op;
  return &*last_reduction_;
}

native::Arguments CommunicatorState::native_arguments(const Call& call,
                                                      const compute::Reduction* reduction,
                                                      const CallRecord& record,
                                                      AccessPath path) const {
  return {.collective = call.collective,
          .input = call.in,
          .output = call.out,
          .count = call.count,
          .reduction = reduction,
          .element_bytes = size_of(call.type),
          .root = call.root,
          .input_counts = call.in_counts,
          .input_displacements = call.in_displacements,
          .output_counts = call.out_counts,
          .output_displacements = call.out_displacements,
          .access = path,
          .record = record};
}

Status CommunicatorState::run(const Call& call, Received* received) {
  if (is_point_to_point(call.collective)) return run_group({&call, 1}, nullptr, received);
  if (is_last_call_again(call)) {
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
  const Status outcome = finish(*request);
  if (unsent) engine.flush();
  return outcome;
}

// Without a hint a look at a short list, most often at its first entry.
CommunicatorState::Way CommunicatorState::way_of(const Call& call, const CallShape& shape) {
  if (native_ == nullptr || is_point_to_point(call.collective)) return {};
  if (const std::string_view hint = hint_for(call); !hint.empty()) {
    if (hint != "native") return {};
    const Result<algorithms::Choice> choice = choose(call, shape);
    return choice ? Way{true, choice->path} : Way{};
  }
  auto& ranges = native_ranges_[static_cast<std::size_t>(call.collective)];
  if (ranges.empty()) {
    ranges = runtime_->selection().native_ranges(selection_request(call.collective, 0));
  }
  for (const algorithms::NativeRange& range : ranges) {
    if (shape.agreed_bytes > range.bytes_max) continue;
    // A call that must not use every algorithm may still be native: choose() knows.
    return {range.native, range.path};
  }
  return {};
}

// The short way: no request, no queue, no clock while the peers are quick.
Status CommunicatorState::run_native(const Call& call, const CallShape& shape, AccessPath path) {
  RequestState* request = nullptr;
  {
    const Engine::Lock lock(runtime_->engine());
    UNISONO_TRY(usable());
    fold_last_calls();
    last_start_ = 0;
    Status status;
    const compute::Reduction* reduction =
        reduces(call.collective) ? reduction_for(call, &status) : nullptr;
    if (!status) return status;
    const std::uint64_t sequence = collectives_++;
    const CallRecord record =
        make_record(call, sequence, hint_number(call.collective, hint_for(call)));
    const native::Arguments arguments = native_arguments(call, reduction, record, path);
    native::NativeCall* operation = nullptr;
    if (native_queue_.empty()) {
      operation = &native_->start(arguments);
      if (const std::optional<Status> outcome = watch(*operation)) {
        if (outcome->ok()) remember_call(call, shape);
        return *outcome;
      }
    }
    request = &hand_over(call, sequence, record);
    if (operation != nullptr) {
      request->native.adopt(*this, call.collective, *operation);
    } else {
      request->native.begin(*this, arguments);
    }
    runtime_->engine().start(*request);
  }
  return finish(*request);
}

// The caller itself looks on, most often long enough. None: not over yet.
std::optional<Status> CommunicatorState::watch(native::NativeCall& operation) {
  Engine& engine = runtime_->engine();
  const bool spins = engine.idle().spins > 0;
  const int looks = spins ? std::min(engine.idle().spins, kNativeLooks) : kNativeYields;
  for (int look = 0; look <= looks; ++look) {
    if (operation.advance()) {
      if (operation.status().ok()) return Status();
      if (native_->raised(nullptr) != ErrorCode::kOk) return std::nullopt;  // that came first
      fail(operation.status(), Tell::kEveryone);
      return failure();
    }
    if (spins) {
      cpu_relax();
    } else {
      engine.yield();
    }
  }
  return std::nullopt;
}

// A request that is to go on with a native call.
RequestState& CommunicatorState::hand_over(const Call& call, std::uint64_t sequence,
                                           const CallRecord& record) {
  RequestState& request = prepare(call);
  request.sequence = sequence;
  request.record = record;
  request.operation = &request.native;
  running_.push_back(&request);
  return request;
}

// A call with counts is counted at once: they are the caller's.
void CommunicatorState::remember_call(const Call& call, const CallShape& shape) {
  last_call_ = call;
  last_shape_ = shape;
  last_calls_ = 1;
  if (native_->can_repeat() && has_no_counts(call)) {
    last_start_ = native_->starts();
  } else {
    fold_last_calls();
  }
}

// Before the native group starts anything else: only then are they counted.
void CommunicatorState::fold_last_calls() {
  if (last_calls_ == 0) return;
  traffic_.calls[static_cast<std::size_t>(last_call_.collective)] += last_calls_;
  native_->count_last(last_call_.collective, last_calls_, &traffic_);
  last_calls_ = 0;
}

// Whether this call is the last one again, with buffers that the same check would find right.
bool CommunicatorState::is_last_call_again(const Call& call) const {
  const Call& last = last_call_;
  if (last_start_ == 0 || call.collective != last.collective || call.count != last.count ||
      call.type != last.type || call.root != last.root ||
      call.options.timeout != last.options.timeout || call.options.order != last.options.order ||
      !call.options.algorithm.empty() || !has_no_counts(call) || !same_op(call.op, last.op)) {
    return false;
  }
  if (call.in == last.in && call.out == last.out) return true;
  if (last_shape_.in_place || call.in == nullptr || call.out == nullptr) return false;
  const auto* in = static_cast<const std::byte*>(call.in);
  const auto* out = static_cast<const std::byte*>(call.out);
  return in + last_shape_.input_bytes <= out || out + last_shape_.output_bytes <= in;
}

// A small call like the one before: nothing is checked or worked out anew. None: it is not.
std::optional<Status> CommunicatorState::run_again(const Call& call) {
  RequestState* request = nullptr;
  {
    const Engine::Lock lock(runtime_->engine());
    UNISONO_TRY(usable());
    if (!native_queue_.empty() || native_->starts() != last_start_) return std::nullopt;
    const std::uint64_t sequence = collectives_++;
    native::NativeCall& operation = native_->repeat(call.in, call.out, sequence);
    if (const std::optional<Status> outcome = watch(operation)) {
      if (outcome->ok()) ++last_calls_;
      return outcome;
    }
    request = &hand_over(call, sequence,
                         make_record(call, sequence, hint_number(call.collective, hint_for(call))));
    request->native.adopt(*this, call.collective, operation);
    runtime_->engine().start(*request);
  }
  return finish(*request);
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
  Status first;
  const auto note = [&](const Status& status, const Call& call) {
    if (!first.ok() || status.ok()) return;
    first = status;
    if (failed != nullptr) *failed = call.collective;
  };
  Engine& engine = runtime_->engine();
  bool unsent = false;
  group_.clear();
  {
    const Engine::Lock lock(engine);
    for (const Call& call : calls) {
      const Result<RequestState*> request =
          is_point_to_point(call.collective) ? admit_message(call) : check_and_admit(call);
      note(request.status(), call);
      if (!request) break;
      if (*request != nullptr) group_.push_back(*request);
    }
    engine.start_and_linger(group_);
    unsent = engine.messenger().has_unsent();
  }
  for (Task* task : group_) {
    RequestState& request = static_cast<RequestState&>(*task);
    note(finish(request), request.call);
    if (received == nullptr) continue;
    const TaggedResult& result = request.point_to_point.result();
    *received = {member_of(result.peer), result.tag, result.bytes / size_of(request.call.type)};
  }
  group_.clear();
  if (unsent) engine.flush();
  return first;
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
  RequestState& request = acquire();
  launch_point_to_point(request, call);
  if (call.collective == Collective::kSend && request.point_to_point.advance()) {
    request.held = false;
    count_send(call);
    return nullptr;
  }
  fill(request, call);
  running_.push_back(&request);
  return &request;
}

// A pooled request for this call. Under the lock.
RequestState& CommunicatorState::prepare(const Call& call) {
  RequestState& request = acquire();
  fill(request, call);
  return request;
}

RequestState& CommunicatorState::acquire() {
  const auto found = std::find_if(requests_.begin(), requests_.end(), [](const auto& candidate) {
    return !candidate->held && !candidate->running && candidate.use_count() == 1;
  });
  RequestState* request = nullptr;
  if (found != requests_.end()) {
    request = found->get();
  } else {
    request = requests_.emplace_back(std::make_shared<RequestState>()).get();
    request->on_done = [this](Task& done) { on_done(static_cast<RequestState&>(done)); };
  }
  request->held = true;
  return *request;
}

void CommunicatorState::fill(RequestState& request, const Call& call) {
  request.call = call;
  request.outcome = Status();
  request.reduction.reset();
  request.probed = request.reported = request.warned = request.timed_out = false;
  request.plan = nullptr;
  request.done.store(false, std::memory_order_relaxed);
  request.gone_since = {};
  request.began = {};
}

// An asynchronous call outlives the caller's count arrays.
void CommunicatorState::copy_counts(RequestState& request) {
  std::span<const std::size_t>* spans[]{&request.call.in_counts, &request.call.in_displacements,
                                        &request.call.out_counts, &request.call.out_displacements};
  for (int i = 0; i < 4; ++i) {
    if (spans[i]->empty()) continue;
    request.counts[i].assign(spans[i]->begin(), spans[i]->end());
    *spans[i] = request.counts[i];
  }
}

Result<std::shared_ptr<RequestState>> CommunicatorState::start(const Call& call) {
  Result<std::shared_ptr<RequestState>> request = begin(call);
  if (!request) return request;
  if ((*request)->done.load(std::memory_order_acquire)) {
    runtime_->engine().flush();
  } else {
    runtime_->engine().wake_progress_thread();
  }
  return request;
}

// Checks and starts; nobody but the caller makes progress yet.
Result<std::shared_ptr<RequestState>> CommunicatorState::begin(const Call& call) {
  UNISONO_TRY(usable());
  CallShape shape;
  UNISONO_TRY(check_call(call, rank_, size(), &shape));
  const Engine::Lock lock(runtime_->engine());
  UNISONO_ASSIGN(RequestState * request, admit(call, shape));
  runtime_->engine().start(*request);
  request->communicator = shared_from_this();
  std::shared_ptr<RequestState> shared = request->shared_from_this();
  request->held = false;
  return shared;
}

// Makes a checked call's operation, which the engine is then to start. Under the lock.
Result<RequestState*> CommunicatorState::admit(const Call& call, const CallShape& shape) {
  UNISONO_TRY(usable());
  RequestState* request = &prepare(call);
  copy_counts(*request);
  if (const Status launched = launch(*request, shape); !launched) {
    request->held = false;
    const ErrorCode code = launched.code();
    if (code == ErrorCode::kInvalidArgument || code == ErrorCode::kUnsupported) return launched;
    // The other ranks are in this call and would wait for what never comes.
    fail(Status(code, launched.message(), rank_), Tell::kEveryone);
    return failure();
  }
  running_.push_back(request);
  return request;
}

// Makes the request's operation.
Status CommunicatorState::launch(RequestState& request, const CallShape& shape) {
  if (is_point_to_point(request.call.collective)) {
    launch_point_to_point(request, request.call);
    return Status();
  }
  if (reduces(request.call.collective)) {
    UNISONO_ASSIGN(request.reduction,
                   compute::Reduction::make(request.call.type, request.call.op, size()));
  }
  if (const Way way = way_of(request.call, shape); way.native) {
    return launch_native(request, way.path);
  }
  UNISONO_ASSIGN(const algorithms::Choice choice, choose(request.call, shape));
  return choice.algorithm == nullptr ? launch_native(request, choice.path)
                                     : launch_plan(request, shape, choice);
}

Status CommunicatorState::launch_native(RequestState& request, AccessPath path) {
  request.sequence = collectives_++;
  request.record = make_record(request.call, request.sequence,
                               hint_number(request.call.collective, hint_for(request.call)));
  request.native.begin(
      *this, native_arguments(request.call, request.reduction ? &*request.reduction : nullptr,
                              request.record, path));
  request.operation = &request.native;
  return Status();
}

Status CommunicatorState::launch_plan(RequestState& request, const CallShape& shape,
                                      const algorithms::Choice& choice) {
  const Call& call = request.call;
  if (request.execution == nullptr) {
    request.execution =
        std::make_unique<Execution>(runtime_->engine().messenger(), runtime_->scratch());
  }
  // A prepared input lies in scratch memory and not where the caller has it.
  const bool in_place = shape.in_place && !(request.reduction && request.reduction->prepares());
  PlanCache::Entry& entry =
      plans_.get(call, *choice.algorithm, choice.chunks, in_place, rank_, size());
  const CallRecord record =
      make_record(call, collectives_, hint_number(call.collective, hint_for(call)));
  Execution::Call execution;
  execution.plan = &entry.plan;
  execution.input = call.in;
  execution.output = call.out;
  execution.reduction = request.reduction ? &*request.reduction : nullptr;
  execution.finish_bytes = reduces(call.collective) ? shape.output_bytes : 0;
  execution.communicator = id_;
  execution.sequence = collectives_;
  execution.record = record;
  execution.world_ranks = &members_;
  UNISONO_TRY(request.execution->begin(execution));
  request.sequence = collectives_++;
  request.record = record;
  request.plan = &entry;
  ++entry.in_use;
  request.operation = request.execution.get();
  runtime_->engine().messenger().note_call(id_, request.sequence, record);
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
    request.record = make_record(call, key.sequence, 0);
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
  std::erase(running_, &request);
  request.outcome = request.operation->status();
  if (request.outcome.ok()) count(request);
  if (request.plan != nullptr) --request.plan->in_use;
  request.plan = nullptr;
  if (!request.outcome) {
    if (!failed_.load(std::memory_order_relaxed)) fail(request.outcome, Tell::kEveryone);
    request.outcome = failure();
    return;
  }
  if (request.call.collective != Collective::kReceive) return;
  const TaggedResult& result = request.point_to_point.result();
  const std::size_t room = request.call.count * size_of(request.call.type);
  if (result.bytes > room) {
    request.outcome =
        Status(ErrorCode::kInvalidArgument,
               "the message of rank " + std::to_string(member_of(result.peer)) + " has " +
                   std::to_string(result.bytes) + " bytes and the room is " + std::to_string(room) +
                   "; the message was dropped",
               member_of(result.peer));
  }
}

// A native call has counted itself while it was the group's.
void CommunicatorState::count(const RequestState& request) {
  const Collective collective = request.call.collective;
  if (collective == Collective::kSend) return count_send(request.call);
  ++traffic_.calls[static_cast<std::size_t>(collective)];
  if (collective == Collective::kReceive) {
    const TaggedResult& got = request.point_to_point.result();
    count_received(collective, member_of(got.peer), got.bytes, &traffic_);
  } else if (request.plan != nullptr) {
    for (const PlannedMessage& message : request.plan->plan.messages) {
      const auto count_one = message.sent ? count_sent : count_received;
      count_one(collective, message.peer, message.bytes, &traffic_, 1);
    }
  }
}

void CommunicatorState::count_send(const Call& call) {
  ++traffic_.calls[static_cast<std::size_t>(Collective::kSend)];
  count_sent(Collective::kSend, call.root, call.count * size_of(call.type), &traffic_);
}

TrafficReport CommunicatorState::traffic() {
  const Engine::Lock lock(runtime_->engine());
  fold_last_calls();
  return traffic_;
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
          .native = native_ != nullptr,
          .access = runtime_->config().access};
}

Result<algorithms::Choice> CommunicatorState::choose(const Call& call,
                                                     const CallShape& shape) const {
  algorithms::SelectionRequest request = selection_request(call.collective, shape.agreed_bytes);
  request.commutative = call.op.kind != OpKind::kUser || call.op.commutative;
  request.order = call.options.order;
  return runtime_->selection().choose(request, hint_for(call));
}

std::string CommunicatorState::explain(Collective collective, std::size_t bytes) const {
  return runtime_->selection().explain(selection_request(collective, bytes), "");
}

}  // namespace unisono::detail
