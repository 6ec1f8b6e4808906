// What the messenger keeps per message, per channel and per peer. Private to messenger*.cc.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/call_history.h"
#include "engine/messenger.h"

namespace unisono {

/// Eager credit a message costs: its bytes and the header that announces it, so that a flood of
/// empty messages is bounded too.
inline std::size_t credit_cost(std::size_t bytes) { return bytes + sizeof(FrameHeader); }

/// What an announcement costs: what the receiver keeps of it is bounded as well.
inline constexpr std::size_t kAnnounceCost = sizeof(FrameHeader);

/// How often a message that waits for its grant is offered: when its call has waited for long, and
/// when the receiver says that it waits. So whichever of the two comes later finds the other there.
inline constexpr int kOffersMax = 2;

/// Tags of one channel that a receiver may wait for at once while its peer has no credit. Receives
/// beyond that wait their turn.
inline constexpr std::size_t kWantsMax = 1 << 14;

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
  int offers = 0;                // kWaiting: how often the receiver was told
  int in_flight = 0;             // frames whose payload the transport still holds
  MessageOwner* owner = nullptr;
  std::uint32_t slot = 0;
  Peer* peer = nullptr;
};

/// Which pieces of a granted message have come: each may be placed once, whatever stream brings it.
/// While they come in order they are only counted.
class PlacedPieces {
 public:
  void reset() {
    next_ = 0;
    beyond_.clear();
  }
  /// False when one of those from `first` on was placed before.
  bool place(std::size_t first, std::size_t count = 1) {
    if (first == next_ && beyond_.empty()) {
      next_ += count;
      return true;
    }
    if (first < next_) return false;
    if (first + count > beyond_.size()) beyond_.resize(first + count);
    const auto begin = beyond_.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end = begin + static_cast<std::ptrdiff_t>(count);
    if (std::find(begin, end, true) != end) return false;
    std::fill(begin, end, true);
    while (next_ < beyond_.size() && beyond_[next_]) ++next_;
    return true;
  }

 private:
  std::size_t next_ = 0;      // all before it are placed
  std::vector<bool> beyond_;  // by piece, once one has overtaken another; keeps its memory
};

struct PostedMessage {
  Rank peer = -1;  // kAnyRank until matched
  MessageKey key;
  CallRecord record;
  bool tagged = false;   // not matched to a message yet: key.sequence is meaningless
  bool discard = false;  // longer than the room
  bool granted = false;
  bool granted_again = false;
  std::byte* target = nullptr;
  std::size_t bytes = 0;
  std::size_t remaining = 0;  // not received
  std::size_t placed = 0;     // of what is discarded; else `pieces` know better
  TaggedResult* result = nullptr;
  MessageOwner* owner = nullptr;
  std::uint32_t slot = 0;
};

struct Messenger::Posted : PostedMessage {
  PlacedPieces pieces;

  void reset() {
    static_cast<PostedMessage&>(*this) = {};
    pieces.reset();
  }
};

/// A message that came, or was announced, before its receive was posted.
struct Messenger::Arrival {
  MessageKey key;
  CallRecord record;
  std::size_t bytes = 0;
  std::size_t cost = 0;       // credit that the sender spent on it
  bool announced = false;     // the data are still at the sender
  bool complete = false;      // eager: all bytes are in `buffer`
  Posted* claimed = nullptr;  // posted while the bytes were still arriving
  std::vector<std::byte> buffer;
};

/// Messages in channel order. Unlike a deque it keeps its memory.
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

/// One peer in one communicator.
struct Messenger::Channel {
  std::uint32_t communicator = 0;
  Calls* calls = nullptr;
  bool admitted = true;        // false: this rank knows the communicator and the peer is no member
  bool broken = false;         // the peer broke the protocol here
  bool left = false;           // the peer has closed the communicator
  std::size_t credit = 0;      // what we may still send unasked
  std::size_t held = 0;        // cost received and not yet returned
  std::size_t to_return = 0;   // consumed, not yet told to the sender
  Backlog held_back;           // messages that there is no credit for, not even to announce them
  std::vector<Tag> wanted;     // the peer waits for such messages; none is held back
  std::vector<Tag> asked_for;  // the same the other way: told to the peer, not answered
  bool lost_grants = false;    // early grants of the peer were not kept
  bool lost_frames = false;    // there was no memory for them; broken as well
  std::string violation;       // to be told when this rank gets to know the communicator

  std::uint32_t said_left = 0;  // how often the peer has said that it has left

  bool is_heard() const { return admitted && !broken; }
};

struct Messenger::Peer {
  Rank rank = -1;
  Transport* transport = nullptr;
  Endpoint* endpoint = nullptr;
  EndpointTraits traits;
  bool closed = false;
  std::vector<std::unique_ptr<Channel>> channels;
  Channel* last_channel = nullptr;      // looked up last
  std::size_t early_communicators = 0;  // that it was the first to speak in
  Backlog backlog;                   // frames in channel order that the transport had no room for
  std::vector<Outgoing*> waiting;    // announced or expected to be asked for
  std::vector<Outgoing*> streaming;  // granted
  std::vector<Outgoing*> lent;       // wholly posted, payload still held by the transport
  std::vector<FrameHeader> early_grants;
  std::vector<Posted*> posted;
  std::vector<std::unique_ptr<Arrival>> arrivals;  // in order of arrival
  std::vector<std::unique_ptr<Arrival>> free_arrivals;
  std::size_t kept_bytes = 0;  // of their buffers
  // The eager frame on its way, if place() has taken it: where its bytes go. There is one at a
  // time.
  Posted* eager_posted = nullptr;
  Arrival* eager_arrival = nullptr;

  // Of messenger.cc: parts of cancel().
  /// How many of them were counted as unsent.
  std::size_t drop_sends(const MessageOwner& owner, std::vector<Outgoing*>* freed);
  void drop_receives(const MessageOwner& owner, std::vector<Posted*>* freed);
  /// What is still arriving for them is kept, and nobody's.
  void unclaim_arrivals(const MessageOwner& owner, std::vector<Posted*>* freed);

 private:
  template <typename List>
  std::size_t drop(List& list, const MessageOwner& owner, std::vector<Outgoing*>* freed) const;
};

struct Messenger::Calls {
  struct Probe {
    Rank peer = -1;
    NumberedCall call;
  };
  Rank early = -1;              // the peer that has spoken here before this rank did
  std::vector<bool> members;    // by world rank; meaningless while this is early
  std::vector<Probe> probes;    // the latest of each peer
  std::vector<Posted*> tagged;  // unmatched, in order of posting

  bool admits(Rank rank) const { return early >= 0 || members[static_cast<std::size_t>(rank)]; }
  /// A part of cancel(), of messenger.cc.
  void drop_tagged(const MessageOwner& owner, std::vector<Posted*>* freed);
};

}  // namespace unisono
