// What the messenger keeps per message, per lane and per peer. Private to messenger*.cc.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "engine/messenger.h"

namespace unisono {

/// Eager credit a message costs: its bytes and the header that announces it, so that a flood of
/// empty messages is bounded too.
inline std::size_t credit_cost(std::size_t bytes) { return bytes + sizeof(FrameHeader); }

inline MessageKey key_of(const FrameHeader& header) {
  return {header.communicator, header.frame_class, header.index, header.sequence};
}

struct Messenger::Outgoing {
  enum class State : std::uint8_t { kControl, kEager, kAnnounce, kWaiting, kStreaming };
  State state = State::kControl;
  FrameHeader header;  // of the eager, announcing or control frame; pieces are made from it
  std::span<const std::byte> payload;
  std::size_t posted_bytes = 0;  // kStreaming: handed to the transport so far
  bool begun = false;            // kStreaming: at least one piece was posted
  int in_flight = 0;             // frames whose payload the transport still holds
  MessageOwner* owner = nullptr;
  std::uint32_t slot = 0;
  Peer* peer = nullptr;
};

struct Messenger::Posted {
  Rank peer = -1;  // kAnyRank until matched
  MessageKey key;
  CallRecord record;
  bool tagged = false;   // not matched to a message yet: key.sequence is meaningless
  bool discard = false;  // longer than the room
  std::byte* target = nullptr;
  std::size_t bytes = 0;
  std::size_t remaining = 0;
  TaggedResult* result = nullptr;
  MessageOwner* owner = nullptr;
  std::uint32_t slot = 0;
};

/// A message that came, or was announced, before its receive was posted.
struct Messenger::Arrival {
  MessageKey key;
  CallRecord record;
  std::size_t bytes = 0;
  bool announced = false;     // the data are still at the sender
  bool complete = false;      // eager: all bytes are in `buffer`
  Posted* claimed = nullptr;  // posted while the bytes were still arriving
  std::vector<std::byte> buffer;
};

/// Messages in lane order. Unlike a deque it keeps its memory.
class Messenger::Backlog {
 public:
  using Iterator = std::vector<Outgoing*>::iterator;

  bool empty() const { return first_ == messages_.size(); }
  Outgoing* front() const { return messages_[first_]; }
  void push_back(Outgoing* message) { messages_.push_back(message); }
  void pop_front() {
    ++first_;
    if (first_ == messages_.size() || (first_ >= 64 && 2 * first_ >= messages_.size())) {
      messages_.erase(messages_.begin(), begin());
      first_ = 0;
    }
  }
  Iterator begin() { return messages_.begin() + static_cast<std::ptrdiff_t>(first_); }
  Iterator end() { return messages_.end(); }
  Iterator erase(Iterator at) { return messages_.erase(at); }

 private:
  std::vector<Outgoing*> messages_;
  std::size_t first_ = 0;
};

struct Messenger::Lane {
  std::uint32_t communicator = 0;
  std::size_t credit = 0;     // what we may still send eagerly
  std::size_t held = 0;       // eager cost received and not yet returned
  std::size_t to_return = 0;  // consumed, not yet told to the sender
};

struct Messenger::Peer {
  Rank rank = -1;
  Transport* transport = nullptr;
  Endpoint* endpoint = nullptr;
  LaneTraits traits;
  bool closed = false;
  std::vector<Lane> lanes;
  Backlog backlog;                   // frames in lane order that the transport had no room for
  std::vector<Outgoing*> waiting;    // announced or expected to be asked for
  std::vector<Outgoing*> streaming;  // granted
  std::vector<Outgoing*> lent;       // wholly posted, payload still held by the transport
  std::vector<FrameHeader> early_grants;
  std::vector<Posted*> posted;
  std::vector<std::unique_ptr<Arrival>> arrivals;  // in order of arrival
  std::vector<std::unique_ptr<Arrival>> free_arrivals;
};

struct Messenger::Calls {
  struct Entry {
    std::uint64_t sequence = ~std::uint64_t{0};
    CallRecord record;
  };
  struct Probe {
    Rank peer = -1;
    Entry call;
  };
  bool early = false;            // only peers have spoken here so far
  std::array<Entry, 64> recent;  // by sequence modulo size
  std::vector<Probe> probes;     // the latest of each peer
  std::vector<Posted*> tagged;   // unmatched, in order of posting
};

}  // namespace unisono
