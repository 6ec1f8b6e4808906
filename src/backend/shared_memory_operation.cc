#include "backend/shared_memory_operation.h"

#include <string>

#include "backend/shared_memory_backend.h"
#include "base/grace_periods.h"

namespace unisono {

void SharedMemoryOperation::begin(SharedMemoryBackend& backend, const StartedCall& call,
                                  native::NativeCall* running) {
  backend_ = &backend;
  call_ = &call;
  running_ = running;
  raised_at_ = {};
  status_ = Status();
  backend.line_up(*this);
}

bool SharedMemoryOperation::advance() {
  can_go_on_ = false;
  if (running_ == nullptr && backend_->first() != this) return false;
  const bool ended = run();
  Rank failed_rank = -1;
  const ErrorCode raised = backend_->group()->raised(&failed_rank);
  // What this rank finds wrong after another's failure may only follow from that.
  const bool disagrees = ended && running_->status().code() == ErrorCode::kMismatch;
  if (ended && !disagrees && (running_->status().ok() || raised == ErrorCode::kOk)) {
    status_ = running_->status();
    if (status_.ok() && call_->is_counted) backend_->count(*running_, call_->call.collective);
    leave_queue();
    return true;
  }
  if (raised == ErrorCode::kOk) {
    if (ended) backend_->disagree(running_->status());
    return false;
  }
  // The decision that follows says more than the raised word: it ends this operation by fail().
  const TimePoint now = Clock::now();
  if (raised_at_ == TimePoint{}) raised_at_ = now;
  if (now - raised_at_ < grace::kCause) return false;
  const std::string who = failed_rank < 0 ? "another rank" : "rank " + std::to_string(failed_rank);
  status_ = Status(raised, who + " ended the call", failed_rank);
  if (running_ != nullptr) running_->fail(status_);
  leave_queue();
  return true;
}

// True when the native call has ended. One that comes after a failure is never started: it fails,
// even if all others had given their parts before.
bool SharedMemoryOperation::run() {
  if (running_ == nullptr) {
    if (backend_->has_failed()) return false;
    running_ = &backend_->start_native(*call_);
  }
  const bool ended = running_->advance();
  can_go_on_ = running_->can_go_on();
  return ended;
}

void SharedMemoryOperation::fail(const Status& cause) {
  if (running_ != nullptr) running_->fail(cause);
  status_ = cause;
  leave_queue();
}

void SharedMemoryOperation::leave_queue() {
  running_ = nullptr;
  backend_->leave(*this);
}

// An operation still in the queue waits for the ranks that the first one waits for.
void SharedMemoryOperation::waiting_for(std::vector<Rank>* ranks) const {
  const SharedMemoryOperation* const in_turn = backend_->first();
  const SharedMemoryOperation* const first = in_turn == nullptr ? this : in_turn;
  if (first->running_ != nullptr) first->running_->waiting_for(ranks);
}

}  // namespace unisono
