#include "tests/engine/messenger_fixture.h"

#include <algorithm>
#include <cstring>

namespace unisono::test {

Bytes filled(std::size_t bytes, int seed) {
  Bytes out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    out[i] = static_cast<std::byte>((i * 31 + static_cast<std::size_t>(seed) * 7 + 1) & 0xff);
  }
  return out;
}

std::vector<FrameHeader> Outbox::of(FrameKind kind) const {
  std::vector<FrameHeader> found;
  for (const Frame& frame : frames) {
    if (frame.header.kind == kind) found.push_back(frame.header);
  }
  return found;
}

Fixture::Fixture(bool opened) : messenger(4, events, 0) {
  for (Rank peer = 0; peer < 4; ++peer) messenger.set_route(peer, transport);
  if (opened) messenger.open(kCommunicator, std::vector<Rank>{0, 1, 2});
}

Placement::Kind Fixture::frame(Rank peer, const FrameHeader& header, const Bytes& payload) {
  const Placement placement = messenger.place(peer, header);
  if (placement.kind == Placement::Kind::kInto && !payload.empty()) {
    std::memcpy(placement.target, payload.data(), payload.size());
  } else if (placement.kind == Placement::Kind::kDeliver && !payload.empty()) {
    messenger.deliver(peer, header, 0, payload);
  }
  messenger.received(peer, header);
  return placement.kind;
}

std::byte* Fixture::place(Rank peer, const FrameHeader& header) {
  const Placement placement = messenger.place(peer, header);
  return placement.kind == Placement::Kind::kInto ? placement.target : nullptr;
}

void Fixture::enter(std::uint64_t sequence, const CallRecord& record) {
  events.calls[{kCommunicator, sequence}] = record;
  messenger.compare_call(kCommunicator, sequence, record);
}

void Fixture::spend_credit(Rank peer) {
  for (std::size_t spent = 0; spent < kCreditBytes; spent += sizeof(FrameHeader)) {
    frame(peer, tagged(FrameKind::kAnnounce, 1000, spent, kEagerBytes + 1));
  }
}

MessageKey key_of(std::uint64_t sequence) {
  return {kCommunicator, FrameClass::kCollective, 0, sequence};
}

FrameHeader header_of(FrameKind kind, const MessageKey& key, std::size_t total, std::size_t payload,
                      std::size_t offset) {
  FrameHeader header;
  header.kind = kind;
  header.frame_class = key.frame_class;
  header.communicator = key.communicator;
  header.index = key.index;
  header.sequence = key.sequence;
  header.total_bytes = total;
  header.payload_bytes = static_cast<std::uint32_t>(payload);
  header.offset = offset;
  return header;
}

FrameHeader piece(std::uint64_t sequence, std::size_t total, std::size_t index) {
  const std::size_t offset = index * kFramePayloadMax;
  return header_of(FrameKind::kData, key_of(sequence), total,
                   std::min(kFramePayloadMax, total - offset), offset);
}

FrameHeader tagged(FrameKind kind, Tag tag, std::uint64_t sequence, std::size_t total,
                   std::size_t payload) {
  return header_of(kind, {kCommunicator, FrameClass::kPointToPoint, tag, sequence}, total, payload);
}

}  // namespace unisono::test
