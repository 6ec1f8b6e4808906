// A send or receive as the engine sees it. Thread rule: the engine's lock.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/messenger.h"
#include "engine/operation.h"

namespace unisono {

class MessageOperation final : public Operation, private MessageOwner {
 public:
  /// `member`: the peer in the communicator.
  void begin_send(Messenger& messenger, Rank peer, Rank member, const MessageKey& key,
                  const CallRecord& record, std::span<const std::byte> payload);
  void begin_receive(Messenger& messenger, Rank peer, Rank member, const MessageKey& key,
                     std::span<std::byte> room);

  bool advance() override { return done_; }
  void fail(const Status& cause) override;
  void waiting_for(std::vector<Rank>* ranks) const override { ranks->push_back(member_); }
  const TaggedResult& result() const { return result_; }

 private:
  template <typename Post>
  void begin(Messenger& messenger, Rank member, const Post& post);
  void message_done(std::uint32_t) override { done_ = true; }
  void message_piece(std::uint32_t, std::size_t, std::span<const std::byte>) override {}

  Messenger* messenger_ = nullptr;
  Rank member_ = -1;
  bool done_ = false;
  TaggedResult result_;
};

}  // namespace unisono
