#include "backend/message_operation.h"

namespace unisono {

void MessageOperation::begin_send(Messenger& messenger, Rank peer, Rank member,
                                  const MessageKey& key, const CallRecord& record,
                                  std::span<const std::byte> payload) {
  messenger_ = &messenger;
  member_ = member;
  status_ = Status();
  done_ = false;
  done_ = messenger.send(peer, key, record, payload, *this, 0);
}

void MessageOperation::begin_receive(Messenger& messenger, Rank peer, Rank member,
                                     const MessageKey& key, std::span<std::byte> room) {
  messenger_ = &messenger;
  member_ = member;
  status_ = Status();
  done_ = false;
  result_ = {};
  done_ = messenger.receive_tagged(peer, key, room.data(), room.size(), &result_, *this, 0);
}

void MessageOperation::fail(const Status& cause) {
  messenger_->cancel(*this);
  status_ = cause;
}

}  // namespace unisono
