#include "comm/operations.h"

#include <algorithm>

#include "comm/communicator_state.h"
#include "comm/grace_periods.h"

namespace unisono {
void NativeOperation::begin(detail::CommunicatorState& communicator,
                            const native::Arguments& arguments, bool counted) {
  communicator_ = &communicator;
  counted_ = counted;
  arguments_ = arguments;
  running_ = nullptr;
  raised_at_ = {};
  status_ = Status();
  communicator.native_calls().line_up(*this);
}

void NativeOperation::adopt(detail::CommunicatorState& communicator, Collective collective,
                            native::NativeCall& running) {
  communicator_ = &communicator;
  counted_ = true;
  arguments_.collective = collective;
  running_ = &running;
  raised_at_ = {};
  status_ = Status();
  communicator.native_calls().line_up(*this);
}

bool NativeOperation::advance() {
  NativeCalls& calls = communicator_->native_calls();
  if (running_ == nullptr) {
    if (calls.first() != this) return false;
    running_ = &calls.start(arguments_);
  }
  const bool ended = running_->advance();
  Rank culprit = -1;
  const ErrorCode raised = calls.group()->raised(&culprit);
  // What this rank finds wrong after another's failure may only follow from that.
  const bool disagrees = ended && running_->status().code() == ErrorCode::kMismatch;
  if (ended && !disagrees && (running_->status().ok() || raised == ErrorCode::kOk)) {
    status_ = running_->status();
    if (status_.ok() && counted_) {
      running_->count(arguments_.collective, 1, &calls.traffic());
    }
    leave_queue();
    return true;
  }
  if (raised == ErrorCode::kOk) {
    if (ended) communicator_->disagree(running_->status());
    return false;
  }
  // The verdict that follows says more than the raised word: it ends this operation by fail().
  const TimePoint now = Clock::now();
  if (raised_at_ == TimePoint{}) raised_at_ = now;
  if (now - raised_at_ < grace::kCause) return false;
  status_ = Status(raised, "rank " + std::to_string(culprit) + " ended the call", culprit);
  running_->fail(status_);
  leave_queue();
  return true;
}

void NativeOperation::fail(const Status& cause) {
  if (running_ != nullptr) running_->fail(cause);
  status_ = cause;
  leave_queue();
}

void NativeOperation::leave_queue() {
  running_ = nullptr;
  communicator_->native_calls().leave(*this);
}

void NativeOperation::waiting_for(std::vector<Rank>* ranks) const {
  // One that has its turn to come waits for whom the first in the queue waits.
  const NativeOperation* const in_turn = communicator_->native_calls().first();
  const NativeOperation* const first = in_turn == nullptr ? this : in_turn;
  if (first->running_ != nullptr) first->running_->waiting_for(ranks);
}

void PointToPointOperation::begin_send(Messenger& messenger, Rank peer, Rank member,
                                       const MessageKey& key, const CallRecord& record,
                                       std::span<const std::byte> payload) {
  messenger_ = &messenger;
  member_ = member;
  status_ = Status();
  done_ = false;
  done_ = messenger.send(peer, key, record, payload, *this, 0);
}

void PointToPointOperation::begin_receive(Messenger& messenger, Rank peer, Rank member,
                                          const MessageKey& key, std::span<std::byte> room) {
  messenger_ = &messenger;
  member_ = member;
  status_ = Status();
  done_ = false;
  result_ = {};
  done_ = messenger.receive_tagged(peer, key, room.data(), room.size(), &result_, *this, 0);
}

void PointToPointOperation::fail(const Status& cause) {
  messenger_->cancel(*this);
  status_ = cause;
}

}  // namespace unisono
