// A messenger of rank 0 and what the tests need to play its peers: every frame of theirs is placed
// and received by hand, in whatever order no transport would be asked for, and everything that the
// messenger says is written down.
#pragma once

#include <gmock/gmock.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/messenger.h"

namespace unisono::test {

inline constexpr std::uint32_t kCommunicator = 7;
inline constexpr std::size_t kCreditBytes = 4096;
inline constexpr std::size_t kEagerBytes = 256;

using Bytes = std::vector<std::byte>;
Bytes filled(std::size_t bytes, int seed);

/// Writes down what a messenger says.
class Events final : public MessengerEvents {
 public:
  std::vector<std::string> violations;        ///< "<communicator> <peer> <words>"
  std::vector<std::string> mismatches;        ///< "<communicator> <peer>"
  std::vector<std::string> differing_counts;  ///< as violations
  /// What this rank has called, by communicator and number.
  std::map<std::pair<std::uint32_t, std::uint64_t>, CallRecord> calls;
  std::vector<std::string> left_by;
  std::vector<std::string> strangers;
  std::vector<std::uint32_t> short_of_memory;  ///< communicators
  std::vector<Status> closed;

  bool none() const {
    return violations.empty() && mismatches.empty() && differing_counts.empty() &&
           strangers.empty() && short_of_memory.empty() && closed.empty();
  }

  void mismatch(std::uint32_t communicator, Rank peer, const CallRecord&,
                const CallRecord&) override {
    mismatches.push_back(name(communicator, peer));
  }
  void counts_differ(std::uint32_t communicator, Rank peer, std::string what) override {
    differing_counts.push_back(name(communicator, peer) + " " + what);
  }
  const CallRecord* find_call(std::uint32_t communicator, std::uint64_t sequence) const override {
    const auto found = calls.find({communicator, sequence});
    return found == calls.end() ? nullptr : &found->second;
  }
  void violation(std::uint32_t communicator, Rank peer, std::string what) override {
    violations.push_back(name(communicator, peer) + " " + what);
  }
  void link_closed(Rank, const Status& cause) override { closed.push_back(cause); }
  void left(std::uint32_t communicator, Rank peer) override {
    left_by.push_back(name(communicator, peer));
  }
  void stranger(std::uint32_t communicator, Rank peer) override {
    strangers.push_back(name(communicator, peer));
  }
  void no_memory(std::uint32_t communicator) override { short_of_memory.push_back(communicator); }

 private:
  static std::string name(std::uint32_t communicator, Rank peer) {
    return std::to_string(communicator) + " " + std::to_string(peer);
  }
};

/// An operation: which of its messages are done, and what it was handed in pieces.
class Owner final : public MessageOwner {
 public:
  std::map<std::uint32_t, int> done;
  std::size_t piece_bytes = 0;
  std::vector<std::size_t> piece_offsets;

  void message_done(std::uint32_t slot) override { ++done[slot]; }
  void message_piece(std::uint32_t, std::size_t offset, std::span<const std::byte> piece) override {
    piece_bytes += piece.size();
    piece_offsets.push_back(offset);
  }
};

/// Takes every frame and keeps it.
class Outbox final : public Endpoint {
 public:
  struct Frame {
    FrameHeader header;
    Bytes payload;
  };
  std::vector<Frame> frames;
  std::vector<const std::byte*> abandoned;

  PostResult post_send(const FrameHeader& header, std::span<const std::byte> payload,
                       std::uint64_t) override {
    frames.push_back({header, {payload.begin(), payload.end()}});
    return PostResult::kDone;
  }
  /// What take_awaited() finds there, after so many looks.
  Bytes awaited;
  std::uint64_t awaited_credit = 0;
  int looks_in_vain = 0;

  TakeResult take_awaited(AwaitedMessage& wanted) override {
    if (looks_in_vain > 0) {
      --looks_in_vain;
      return TakeResult::kNothing;
    }
    if (wanted.room.size() != awaited.size()) return TakeResult::kOther;
    std::copy(awaited.begin(), awaited.end(), wanted.room.begin());
    wanted.credit = awaited_credit;
    return TakeResult::kTaken;
  }
  /// Messages of up to so many bytes go without a grant.
  std::size_t unasked_bytes = 0;
  bool sends_unasked(std::span<const std::byte> payload) const override {
    return payload.size() <= unasked_bytes;
  }
  void cancel(std::uint64_t) override {}
  void abandon(const std::byte* begin, std::size_t) override { abandoned.push_back(begin); }

  /// Of this kind, so far.
  std::vector<FrameHeader> of(FrameKind kind) const;
};

class OutboxTransport final : public Transport {
 public:
  std::map<Rank, Outbox> peers;

  std::string_view name() const override { return "outbox"; }
  EndpointTraits traits() const override {
    return {.eager_bytes_max = kEagerBytes, .eager_credit_bytes = kCreditBytes};
  }
  std::string address() const override { return ""; }
  Status set_peers(std::vector<std::string>) override { return Status(); }
  Endpoint& endpoint(Rank peer) override { return peers[peer]; }
  bool poll(FrameSink&) override { return false; }
  bool has_unsent() const override { return false; }
  void close(TimePoint, FrameSink&) override {}
};

/// Ranks 0 (the messenger's), 1 and 2 are members of kCommunicator, 3 is not.
struct Fixture {
  explicit Fixture(bool opened = true);

  Outbox& to(Rank peer) { return transport.peers[peer]; }
  /// A frame comes whole: placed, filled, received. What place() said.
  Placement::Kind frame(Rank peer, const FrameHeader& header, const Bytes& payload = {});
  /// The same in two steps, with other frames between them. The target, or null.
  std::byte* place(Rank peer, const FrameHeader& header);
  void received(Rank peer, const FrameHeader& header) { messenger.received(peer, header); }
  /// This rank's operation `sequence` of kCommunicator begins.
  void enter(std::uint64_t sequence, const CallRecord& record);
  /// Unexpected announcements until `peer` has no credit left.
  void spend_credit(Rank peer);
  void poll() { messenger.poll(); }

  Events events;
  OutboxTransport transport;
  Messenger messenger;
  Owner owner;
};

/// A collective message: operation `sequence`, message index 0.
MessageKey key_of(std::uint64_t sequence);
FrameHeader header_of(FrameKind kind, const MessageKey& key, std::size_t total,
                      std::size_t payload = 0, std::size_t offset = 0);
inline FrameHeader eager(std::uint64_t sequence, std::size_t bytes) {
  return header_of(FrameKind::kEager, key_of(sequence), bytes, bytes);
}
/// Piece `index` of a message of `total` bytes, as a sender cuts it.
FrameHeader piece(std::uint64_t sequence, std::size_t total, std::size_t index);
/// A point-to-point message.
FrameHeader tagged(FrameKind kind, Tag tag, std::uint64_t sequence, std::size_t total,
                   std::size_t payload = 0);

}  // namespace unisono::test
