#include "backend/shared_memory_backend.h"

#include <algorithm>

namespace unisono {
namespace {

// Looks of the blocking path before it hands over to the engine's wait.
constexpr int kLooks = 2000;
// The same where every look that fails gives the core to another rank.
constexpr int kYields = 32;

native::Arguments arguments_of(const Call& call, const compute::Reduction* reduction,
                               const CallRecord& record, AccessPath path) {
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

}  // namespace

Result<Operation*> SharedMemoryBackend::start(StartedCall& call, const CallShape&) {
  const compute::Reduction* const reduction = call.reduction ? &*call.reduction : nullptr;
  call.sequence = context_.calls.add(call.record);
  call.is_numbered = true;
  call.shared_memory.begin(*this, arguments_of(call.call, reduction, call.record, call.choice.path),
                           call.is_counted);
  return &call.shared_memory;
}

std::optional<SharedMemoryBackend::ShortCall> SharedMemoryBackend::try_again(const Call& call) {
  if (!queue_.empty() || group_->starts() != last_.start()) return std::nullopt;
  last_.record().history = context_.calls.digest();
  native::NativeCall& running = group_->repeat(call.in, call.out, last_.record());
  ShortCall again{.record = last_.record(), .running = &running};
  again.sequence = context_.calls.add(again.record);
  again.outcome = watch(running);
  if (again.outcome && again.outcome->ok()) last_.note_repeated();
  return again;
}

Result<SharedMemoryBackend::ShortCall> SharedMemoryBackend::run(const Call& call,
                                                                const CallShape& shape,
                                                                const CallRecord& record,
                                                                AccessPath path) {
  last_.forget();
  const compute::Reduction* reduction = nullptr;
  if (reduces(call.collective)) {
    UNISONO_ASSIGN(reduction, last_reduction_.of(call));
  }
  ShortCall begun{.record = record};
  begun.sequence = context_.calls.add(record);
  begun.running = &start_native(arguments_of(call, reduction, record, path));
  begun.outcome = watch(*begun.running);
  if (begun.outcome && begun.outcome->ok()) remember(call, shape, record);
  return begun;
}

// The caller itself looks on, most often long enough. None: not over yet, or not for it to end.
std::optional<Status> SharedMemoryBackend::watch(native::NativeCall& running) {
  const int spins = context_.engine.idle().spins;
  const int looks = spins > 0 ? std::min(spins, kLooks) : kYields;
  for (int look = 0; look <= looks; ++look) {
    if (running.advance()) {
      if (running.status().ok()) return Status();
      if (group_->raised(nullptr) != ErrorCode::kOk) return std::nullopt;  // that came first
      if (running.status().code() == ErrorCode::kMismatch) return std::nullopt;
      return running.status();
    }
    if (spins > 0) {
      cpu_relax();
    } else {
      context_.engine.yield();
    }
  }
  return std::nullopt;
}

Operation* SharedMemoryBackend::go_on(StartedCall& call, const ShortCall& short_call) {
  call.record = short_call.record;
  call.sequence = short_call.sequence;
  call.shared_memory.adopt(*this, call.call.collective, *short_call.running);
  return &call.shared_memory;
}

native::NativeCall& SharedMemoryBackend::start_native(const native::Arguments& arguments) {
  count_last();
  return group_->start(arguments);
}

// One with counts is counted at once: they are the caller's.
void SharedMemoryBackend::remember(const Call& call, const CallShape& shape,
                                   const CallRecord& record) {
  const bool can_repeat = group_->can_repeat() && !has_counts(call);
  last_.remember(call, shape, record, can_repeat ? group_->starts() : 0);
  if (!can_repeat) count_last();
}

void SharedMemoryBackend::count_last() {
  const std::uint64_t times = last_.take_uncounted();
  if (times == 0) return;
  context_.traffic.count_call(last_.collective(), times);
  group_->count_last(last_.collective(), times, &context_.traffic.report());
}

}  // namespace unisono
