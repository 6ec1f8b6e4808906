#include "cuda/collectives/staged_call.h"

#include <algorithm>
#include <string>
#include <utility>

#include "cuda/collectives/cuda_calls.h"

namespace unisono {

Status StagedCall::look_ahead() {
  if (call_.capture != 0) {
    return Status(ErrorCode::kUnsupported,
                  std::string(name_of(call_.call.collective)) + " on " + call_.device->name() +
                      " goes through host memory here, which a CUDA graph cannot hold: call it "
                      "outside of the capture (kernels alone serve collectives of ranks whose GPUs "
                      "share memory on one host)");
  }
  return call_.direct.offer(call_);
}

Status StagedCall::check() {
  Call part;
  CallShape shape;
  choose_part(0, &part, &shape);
  return check_part(part, shape);
}

Status StagedCall::check_part(const Call& part, const CallShape& shape) {
  UNISONO_ASSIGN(checked_, call_.calls->communicator().host().check(part, shape));
  checked_.is_part = elements_of_a_part() > 0;
  return Status();
}

Status StagedCall::begin() {
  is_in_line_ = is_ready_ = host_has_ended_ = false;
  started_ = launched_ = done_on_host_ = retired_ = 0;
  const std::size_t step = elements_of_a_part();
  count_ = step == 0 ? 1 : (call_.call.count + step - 1) / step;
  UNISONO_TRY(call_.gate.make(call_));
  if (!call_.started->in_group) UNISONO_TRY(close_gate());
  return start_parts();
}

// All members know alike what decides it. 0: the call goes whole.
std::size_t StagedCall::elements_of_a_part() const {
  const std::size_t element = size_of(call_.call.type);
  const bool splits = call_.calls->all_have_devices() &&
                      facts_of(call_.call.collective).is_one_vector() &&
                      call_.call.count * element > 2 * kPartBytes;
  return splits ? kPartBytes / element : 0;
}

void StagedCall::choose_part(std::size_t index, Call* call, CallShape* shape) const {
  *call = call_.call;
  *shape = call_.shape;
  const std::size_t step = elements_of_a_part();
  if (step == 0) return;
  const std::size_t element = size_of(call->type);
  const std::size_t first = index * step;
  call->count = std::min(step, call_.call.count - first);
  if (call->in != nullptr) call->in = static_cast<const std::byte*>(call->in) + first * element;
  if (call->out != nullptr) call->out = static_cast<std::byte*>(call->out) + first * element;
  const std::size_t bytes = call->count * element;
  shape->agreed_bytes = std::min(shape->agreed_bytes, bytes);
  shape->input_bytes = std::min(shape->input_bytes, bytes);
  shape->output_bytes = std::min(shape->output_bytes, bytes);
}

Status StagedCall::close_gate() { return call_.gate.close(call_); }

Result<StageState> StagedCall::advance() {
  UNISONO_TRY(start_parts());
  for (;;) {
    UNISONO_ASSIGN(const bool moved, move_host());
    if (!moved) break;
  }
  UNISONO_TRY(retire_parts());
  if (retired_ < count_) return StageState::kWaiting;
  call_.gate.open();
  return StageState::kOver;
}

// Nothing of the library's waits in a stream for work of the caller's: other calls use it too.
Result<bool> StagedCall::is_ready() {
  if (is_ready_) return true;
  if (!std::exchange(is_in_line_, true)) call_.calls->await_stream(call_);
  if (!call_.calls->is_oldest_of_stream(call_)) return false;
  UNISONO_ASSIGN(is_ready_, call_.device->is_over(call_.ready));
  if (is_ready_) call_.calls->leave_line(call_);
  return is_ready_;
}

// Starts as many as there is room for. Only the call whose turn it is takes any: those before it
// have all that they need.
Status StagedCall::start_parts() {
  while (started_ < count_ && started_ - retired_ < kPartsAtOnce &&
         call_.calls->has_turn(*call_.started)) {
    if (reads_input(call_) || !call_.call.out_displacements.empty()) {
      UNISONO_ASSIGN(const bool ready, is_ready());
      if (!ready) break;
    }
    UNISONO_ASSIGN(const bool started, start_part());
    if (!started) break;
  }
  return Status();
}

Result<bool> StagedCall::start_part() {
  Call call;
  CallShape shape;
  choose_part(started_, &call, &shape);
  UNISONO_ASSIGN(const bool placed, part(started_).place(call_, call, shape));
  if (placed) UNISONO_TRY(part(started_++).copy_out());
  return placed;
}

// The host has one part at a time. True when it has got on.
Result<bool> StagedCall::move_host() {
  if (call_.host.is_running()) {
    UNISONO_ASSIGN(host_has_ended_, call_.host.advance());
    if (!host_has_ended_) return false;
  }
  if (host_has_ended_) {
    UNISONO_ASSIGN(const bool ready, is_ready());
    if (!ready) return false;
    host_has_ended_ = false;
    StagedPart& finished = part(done_on_host_++);
    UNISONO_TRY(finished.copy_in(result_bytes(finished)));
    return true;
  }
  if (launched_ == started_) return false;
  UNISONO_ASSIGN(const bool is_here, part(launched_).is_copied());
  if (is_here) UNISONO_TRY(launch_part());
  return is_here;
}

// What serves a part best depends on its bytes: all but the last have as many as the first.
Status StagedCall::launch_part() {
  const StagedPart& here = part(launched_++);
  Call call = here.call();
  call.in = here.host_input();
  call.out = here.host_output();
  if (here.shape().agreed_bytes != checked_.shape.agreed_bytes) {
    UNISONO_TRY(check_part(call, here.shape()));
  }
  UNISONO_TRY(call_.host.start(call, checked_));
  if (launched_ == count_) call_.calls->pass_turn(*call_.started);
  return Status();
}

Status StagedCall::retire_parts() {
  for (; retired_ < done_on_host_; ++retired_) {
    UNISONO_ASSIGN(const bool over, part(retired_).is_copied());
    if (!over) break;
    part(retired_).release();
  }
  return Status();
}

// How much of the output the part has written. A message may be shorter than the buffer of its
// receive. A broadcast writes nothing on its root, nor does an exclusive scan on rank 0.
std::size_t StagedCall::result_bytes(const StagedPart& part) const {
  const std::size_t whole = part.shape().output_bytes;
  const CollectiveFacts& facts = facts_of(part.call().collective);
  const Rank rank = call_.calls->rank();
  if (part.call().collective == Collective::kReceive) {
    return std::min(whole, call_.host.call().message.result().bytes);
  }
  const bool gets_nothing = (facts.in_place == InPlace::kAlways && rank == part.call().root) ||
                            (facts.flow == Flow::kBelowOwn && rank == 0);
  return gets_nothing ? 0 : whole;
}

// Copies wait for nothing but each other: they are over in a moment, and the buffers free. Then the
// caller's stream goes on, to work that may use them. What takes longer may be behind this gate.
void StagedCall::fail() {
  for (std::size_t i = retired_; i < started_; ++i) part(i).await_copy();
  call_.gate.open();
  for (; retired_ < started_; ++retired_) part(retired_).finish();
}

void StagedCall::end() {
  call_.calls->leave_line(call_);
  call_.direct.withdraw();
}

}  // namespace unisono
