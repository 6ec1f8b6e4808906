#include "backend/shared_memory_backend.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/make_room.h"

namespace unisono {
namespace {

// Looks of the blocking path before it hands over to the engine's wait.
constexpr int kLooks = 2000;
// The same where every look that fails gives the core to another rank.
constexpr int kYields = 32;

}  // namespace

Result<Operation*> SharedMemoryBackend::start(StartedCall& call, const CallShape&) {
  make_room(queue_);  // before it has a number
  call.sequence = context_.calls.add(call.record);
  call.is_numbered = true;
  call.shared_memory.begin(*this, call);
  return &call.shared_memory;
}

Tried SharedMemoryBackend::try_again(const Call& call, Status* failure) {
  if (!last_.is_again(call) || !is_idle() || group_->starts() != last_.start()) {
    return Tried::kNotBegun;
  }
  last_.record().history = context_.calls.digest();
  native::NativeCall& running = group_->repeat(call.in, call.out, last_.record());
  short_call_ = {last_.record(), context_.calls.add(last_.record()), &running, true};
  const Tried tried = watch_recorded(failure);
  if (tried == Tried::kOver) last_.note_repeated();
  return tried;
}

Tried SharedMemoryBackend::try_run(const Call& call, const CallShape& shape, Order order,
                                   const CallRecord& record, AccessPath path, Status* failure) {
  last_.forget();
  const compute::Reduction* reduction = nullptr;
  if (reduces(call.collective)) {
    const Result<const compute::Reduction*> last = last_reduction_.of(call, order);
    if (!last) {
      *failure = last.error();
      return Tried::kRefused;
    }
    reduction = *last;
  }
  // Before the call starts: what the recorder loads at once would wait for it otherwise.
  short_call_ = {record, context_.calls.add(record), nullptr, true};
  count_last();
  short_call_.running = &group_->start({call, record, reduction, path});
  const Tried tried = watch_recorded(failure);
  if (tried == Tried::kOver) remember(call, shape, record);
  return tried;
}

Tried SharedMemoryBackend::watch_recorded(Status* failure) {
  context_.recorder.begin_quick(short_call_.record, short_call_.sequence);
  const Tried tried = watch(*short_call_.running, failure);
  if (tried == Tried::kOver) {
    short_call_.is_running = false;
    context_.recorder.end_quick();
  }
  if (tried == Tried::kFailed) context_.recorder.end_quick(*failure);
  return tried;
}

// The caller itself looks on, most often long enough.
Tried SharedMemoryBackend::watch(native::NativeCall& running, Status* failure) {
  const std::int64_t spins = context_.engine.idle().spins;
  const std::int64_t looks = spins > 0 ? std::min<std::int64_t>(spins, kLooks) : kYields;
  for (std::int64_t look = 0; look <= looks; ++look) {
    if (running.advance()) {
      if (running.status().ok()) return Tried::kOver;
      if (group_->raised(nullptr) != ErrorCode::kOk) return Tried::kGoesOn;  // that came first
      if (running.status().code() == ErrorCode::kMismatch) return Tried::kGoesOn;
      *failure = running.status();
      return Tried::kFailed;
    }
    if (running.can_go_on()) break;  // it takes long: the engine looks at its deadline
    if (spins > 0) {
      cpu_relax();
    } else {
      if (context_.engine.idle().sleeps_at_once()) break;
      context_.engine.yield();
    }
  }
  return Tried::kGoesOn;
}

Operation* SharedMemoryBackend::go_on(StartedCall& call) {
  call.backend = this;
  call.recorded = context_.recorder.leave_quick();
  call.record = short_call_.record;
  call.sequence = short_call_.sequence;
  UNISONO_ASSERT(short_call_.is_running, "go_on() follows a call that goes on");
  call.shared_memory.begin(*this, call, short_call_.running);
  short_call_.is_running = false;
  return &call.shared_memory;
}

native::NativeCall& SharedMemoryBackend::start_native(const StartedCall& call) {
  count_last();
  const compute::Reduction* const reduction = call.reduction ? &*call.reduction : nullptr;
  return group_->start({call.call, call.record, reduction, call.choice.path});
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
