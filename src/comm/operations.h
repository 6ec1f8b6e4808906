// The operations that are neither plans nor native state machines themselves: a native call in its
// communicator's queue, and a send or receive.
// Thread rule: the engine's lock.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "engine/messenger.h"
#include "engine/operation.h"
#include "native/native.h"

namespace unisono {

namespace detail {
class CommunicatorState;
}

/// A native call: waits for its turn, runs, and ends when another member has raised a failure.
class NativeOperation final : public Operation {
 public:
  /// `counted`: in the communicator's traffic.
  void begin(detail::CommunicatorState& communicator, const native::Arguments& arguments,
             bool counted = true);
  /// Already started by the blocking path, which found the queue empty.
  void adopt(detail::CommunicatorState& communicator, Collective collective,
             native::NativeCall& running);

  bool advance() override;
  void fail(const Status& cause) override;
  void waiting_for(std::vector<Rank>* ranks) const override;

 private:
  void leave_queue();

  detail::CommunicatorState* communicator_ = nullptr;
  native::Arguments arguments_;
  native::NativeCall* running_ = nullptr;
  bool counted_ = true;
  TimePoint raised_at_{};
};

/// A send or receive.
class PointToPointOperation final : public Operation, private MessageOwner {
 public:
  void begin_send(Messenger& messenger, Rank peer, Rank member, const MessageKey& key,
                  const CallRecord& record, std::span<const std::byte> payload);
  void begin_receive(Messenger& messenger, Rank peer, Rank member, const MessageKey& key,
                     std::span<std::byte> room);

  bool advance() override { return done_; }
  void fail(const Status& cause) override;
  void waiting_for(std::vector<Rank>* ranks) const override { ranks->push_back(member_); }
  const TaggedResult& result() const { return result_; }

 private:
  void message_done(std::uint32_t) override { done_ = true; }
  void message_piece(std::uint32_t, std::size_t, std::span<const std::byte>) override {}

  Messenger* messenger_ = nullptr;
  Rank member_ = -1;
  bool done_ = false;
  TaggedResult result_;
};

}  // namespace unisono
