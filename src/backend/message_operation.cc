#include "backend/message_operation.h"

namespace unisono {

// Where memory is used up in the midst of it, nothing of the message stays behind.
template <typename Post>
void MessageOperation::begin(Messenger& messenger, Rank member, const Post& post) {
  messenger_ = &messenger;
  member_ = member;
  status_ = Status();
  done_ = false;
  try {
    done_ = post();
  } catch (...) {
    messenger.cancel(*this);
    throw;
  }
}

void MessageOperation::begin_send(Messenger& messenger, Rank peer, Rank member,
                                  const MessageKey& key, const CallRecord& record,
                                  std::span<const std::byte> payload) {
  begin(messenger, member, [&] { return messenger.send(peer, key, record, payload, *this, 0); });
}

void MessageOperation::begin_receive(Messenger& messenger, Rank peer, Rank member,
                                     const MessageKey& key, std::span<std::byte> room) {
  result_ = {};
  begin(messenger, member, [&] {
    return messenger.receive_tagged(peer, key, room.data(), room.size(), &result_, *this, 0);
  });
}

void MessageOperation::fail(const Status& cause) {
  messenger_->cancel(*this);
  status_ = cause;
}

}  // namespace unisono
