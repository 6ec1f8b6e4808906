#include "backend/message_backend.h"

#include <string>

namespace unisono {

bool MessageBackend::try_receive(const Call& what, int looks) {
  if (what.peer == kAnyRank) return false;
  const std::size_t bytes = what.count * size_of(what.type);
  const MessageKey key{members_.id(), FrameClass::kPointToPoint, what.tag, 0};
  if (!messenger_.take_awaited(members_.world_rank(what.peer), key,
                               {static_cast<std::byte*>(what.out), bytes}, looks)) {
    return false;
  }
  traffic_.count_call(what.collective);
  traffic_.count_received(what.collective, what.peer, bytes);
  recorder_.note_message(message_record(what), what.peer, what.tag);
  return true;
}

Tried MessageBackend::try_run(StartedCall& call, const Call& what) {
  begin(call, what);
  if (what.collective != Collective::kSend || !call.message.advance()) return Tried::kGoesOn;
  traffic_.count_call(what.collective);
  count(what, call.message.result());
  recorder_.note_message(call.record, what.peer, what.tag);
  return Tried::kOver;
}

void MessageBackend::end(StartedCall& call, bool succeeded) {
  if (!succeeded || !call.is_counted) return;
  const TaggedResult& result = call.message.result();
  if (call.call.collective == Collective::kReceive && !check_received(call.call, result)) return;
  count(call.call, result);
}

void MessageBackend::count(const Call& call, const TaggedResult& result) {
  if (call.collective == Collective::kSend) {
    traffic_.count_sent(call.collective, call.peer, call.count * size_of(call.type));
  } else {
    traffic_.count_received(call.collective, members_.find(result.peer), result.bytes);
  }
}

void MessageBackend::begin(StartedCall& call, const Call& what) {
  const std::size_t bytes = what.count * size_of(what.type);
  const Rank peer = what.peer == kAnyRank ? kAnyRank : members_.world_rank(what.peer);
  MessageKey key{members_.id(), FrameClass::kPointToPoint, what.tag, 0};
  call.record = message_record(what);
  if (what.collective == Collective::kSend) {
    key.sequence = sends_[static_cast<std::size_t>(what.peer)]++;
    call.message.begin_send(messenger_, peer, what.peer, key, call.record,
                            {static_cast<const std::byte*>(what.in), bytes});
  } else {
    call.message.begin_receive(messenger_, peer, what.peer, key,
                               {static_cast<std::byte*>(what.out), bytes});
  }
  call.sequence = key.sequence;
}

Status MessageBackend::check_shorter_or_longer(const Call& receive,
                                               const TaggedResult& result) const {
  const std::size_t element_bytes = size_of(receive.type);
  const std::size_t room = receive.count * element_bytes;
  const bool fits = result.bytes <= room;
  if (fits && result.bytes % element_bytes == 0) return Status();
  const Rank sender = members_.find(result.peer);
  const std::string message = "the message of rank " + std::to_string(sender) + " with tag " +
                              std::to_string(result.tag) + " has " + std::to_string(result.bytes) +
                              " bytes and ";
  const std::string type(name_of(receive.type));
  return Status(
      ErrorCode::kInvalidArgument,
      fits ? message + "that is no whole number of " + type + " elements of " +
                 std::to_string(element_bytes) + " bytes; receive it as what it was sent as"
           : message + "the room is " + std::to_string(room) + "; the message was dropped",
      sender);
}

}  // namespace unisono
