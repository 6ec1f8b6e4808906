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

}  // namespace

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
  if (native() == nullptr || is_point_to_point(call.collective)) return {};
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
    native_calls_.last().forget();
    const compute::Reduction* reduction = nullptr;
    if (reduces(call.collective)) {
      UNISONO_ASSIGN(reduction, last_reduction_.of(call));
    }
    const CallRecord record = record_of(call);
    const std::uint64_t sequence = calls_.add(record);
    const native::Arguments arguments = native_arguments(call, reduction, record, path);
    native::NativeCall* operation = nullptr;
    if (native_calls_.is_idle()) {
      operation = &native_calls_.start(arguments);
      if (const std::optional<Status> outcome = watch(*operation)) {
        if (outcome->ok()) native_calls_.remember(call, shape, record);
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
      if (native()->raised(nullptr) != ErrorCode::kOk) return std::nullopt;  // that came first
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
  RequestState& request = requests_.prepare(call);
  request.sequence = sequence;
  request.record = record;
  request.operation = &request.native;
  requests_.note_running(request);
  return request;
}

// A small call like the one before: nothing is checked or worked out anew. None: it is not.
std::optional<Status> CommunicatorState::run_again(const Call& call) {
  LastCall& last = native_calls_.last();
  RequestState* request = nullptr;
  {
    const Engine::Lock lock(runtime_->engine());
    UNISONO_TRY(usable());
    if (!native_calls_.is_idle() || native()->starts() != last.start()) return std::nullopt;
    last.record().history = calls_.digest();
    native::NativeCall& operation = native()->repeat(call.in, call.out, last.record());
    const std::uint64_t sequence = calls_.add(last.record());
    if (const std::optional<Status> outcome = watch(operation)) {
      if (outcome->ok()) last.note_repeated();
      return outcome;
    }
    request = &hand_over(call, sequence, last.record());
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
