// What tests of the rings begin with: frames, and the two ends of one ring without any device,
// where what one end writes is copied to the other as RDMA writes would do it. Used by one thread.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "transports/verbs/receive_ring.h"
#include "transports/verbs/record.h"
#include "transports/verbs/send_ring.h"

namespace unisono::verbs::test {

inline FrameHeader frame_of(std::size_t payload_bytes, std::uint64_t sequence = 0) {
  FrameHeader header;
  header.payload_bytes = static_cast<std::uint32_t>(payload_bytes);
  header.kind = FrameKind::kData;
  header.frame_class = FrameClass::kPointToPoint;
  header.communicator = 7;
  header.index = 9;
  header.sequence = sequence;
  header.offset = 3 * sequence;
  header.total_bytes = 1 << 20;
  header.record.count = sequence;
  return header;
}

inline bool equal(const FrameHeader& a, const FrameHeader& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

inline std::vector<std::byte> bytes_of(std::size_t count, unsigned seed) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(seed++ * 37 % 251);
  return bytes;
}

inline Source source_of(std::uint64_t number) {
  Source source;
  source.address = 0x1000 * (number + 1);
  for (int rail = 0; rail < kRailsMax; ++rail) {
    source.keys[rail] = static_cast<std::uint32_t>(number + rail);
  }
  return source;
}

inline bool equal(const Source& a, const Source& b) {
  return a.address == b.address && a.keys == b.keys;
}

// Memory of a ring whose ends a sanitizer watches.
struct Memory {
  explicit Memory(std::size_t bytes) : bytes(bytes), begin(std::make_unique<std::byte[]>(bytes)) {}
  std::span<std::byte> span() const { return {begin.get(), bytes}; }
  std::size_t bytes;
  std::unique_ptr<std::byte[]> begin;
};

// Both ends of one ring, with the copying in between.
struct RingPair {
  static constexpr Rank kPeer = 4;

  explicit RingPair(std::size_t bytes, bool has_sums = false)
      : here(bytes),
        there(bytes),
        sender(here.span(), has_sums),
        receiver(there.span(), has_sums ? std::optional<Rank>(kPeer) : std::nullopt) {}

  // As one RDMA write with immediate; false: nothing was left to write.
  bool write(std::size_t bytes_max) {
    const SendRing::Piece piece = sender.next_piece(bytes_max);
    if (piece.bytes == 0) return false;
    EXPECT_LE(piece.bytes, bytes_max);
    EXPECT_LE(piece.offset + piece.bytes, here.bytes) << "a piece crosses the ring's end";
    EXPECT_EQ(piece.end, sender.posted() + piece.bytes);
    std::memcpy(there.begin.get() + piece.offset, here.begin.get() + piece.offset, piece.bytes);
    sender.posted(piece);
    const std::optional<Immediate> immediate =
        decode_immediate(encode(ImmediateKind::kWritten, piece.end / kLine));
    EXPECT_TRUE(immediate.has_value());
    const Status status = receiver.written(immediate->value);
    EXPECT_TRUE(status.ok()) << status.message();
    return true;
  }
  void write_all() {
    while (write(here.bytes)) {
    }
  }
  bool peek(ReceiveRing::Record* record) {
    const Result<bool> found = receiver.peek(record);
    EXPECT_TRUE(found.has_value()) << found.status().message();
    return found.has_value() && *found;
  }

  Memory here;
  Memory there;
  SendRing sender;
  ReceiveRing receiver;
};

}  // namespace unisono::verbs::test
