// Native calls: the short ways of a blocking call, and what they remember. See
// communicator_state.h.
#include <algorithm>

#include "comm/communicator_state.h"

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

}  // namespace

const compute::Reduction* CommunicatorState::reduction_for(const Call& call, Status* status) {
  if (last_reduction_ && last_type_ == call.type && same_op(last_op_, call.op)) {
    return &*last_reduction_;
  }
  Result<compute::Reduction> made = compute::Reduction::make(call.type, call.op, averaged_ranks());
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
    const CallRecord record = record_of(call);
    const std::uint64_t sequence = calls_.add(record);
    const native::Arguments arguments = native_arguments(call, reduction, record, path);
    native::NativeCall* operation = nullptr;
    if (native_queue_.empty()) {
      operation = &native_->start(arguments);
      if (const std::optional<Status> outcome = watch(*operation)) {
        if (outcome->ok()) remember_call(call, shape, record);
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

// The caller itself looks on, most often long enough. None: not over yet, or not for it to end.
std::optional<Status> CommunicatorState::watch(native::NativeCall& operation) {
  Engine& engine = runtime_->engine();
  const bool spins = engine.idle().spins > 0;
  const int looks = spins ? std::min(engine.idle().spins, kNativeLooks) : kNativeYields;
  for (int look = 0; look <= looks; ++look) {
    if (operation.advance()) {
      if (operation.status().ok()) return Status();
      if (native_->raised(nullptr) != ErrorCode::kOk) return std::nullopt;  // that came first
      if (operation.status().code() == ErrorCode::kMismatch) return std::nullopt;
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
void CommunicatorState::remember_call(const Call& call, const CallShape& shape,
                                      const CallRecord& record) {
  last_call_ = call;
  last_shape_ = shape;
  last_record_ = record;
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
      !call.options.algorithm.empty() || !last.options.algorithm.empty() || !has_no_counts(call) ||
      !same_op(call.op, last.op)) {
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
    last_record_.history = calls_.digest();
    native::NativeCall& operation = native_->repeat(call.in, call.out, last_record_);
    const std::uint64_t sequence = calls_.add(last_record_);
    if (const std::optional<Status> outcome = watch(operation)) {
      if (outcome->ok()) ++last_calls_;
      return outcome;
    }
    request = &hand_over(call, sequence, last_record_);
    request->native.adopt(*this, call.collective, operation);
    runtime_->engine().start(*request);
  }
  return finish(*request);
}

Status CommunicatorState::launch_native(RequestState& request, AccessPath path) {
  const compute::Reduction* const reduction = request.reduction ? &*request.reduction : nullptr;
  const CallRecord record = record_of(request.call);
  begin_native(request, native_arguments(request.call, reduction, record, path), true);
  return Status();
}

void CommunicatorState::begin_native(RequestState& request, const native::Arguments& arguments,
                                     bool counted) {
  request.sequence = calls_.add(arguments.record);
  request.is_numbered = true;
  request.record = arguments.record;
  request.native.begin(*this, arguments, counted);
  request.operation = &request.native;
}

}  // namespace unisono::detail
