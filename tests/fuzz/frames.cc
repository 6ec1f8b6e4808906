// Bytes of a TCP stream after its handshake, cut into any pieces, against a parser that has the
// whole stream before it.
#include <algorithm>

#include "tests/fuzz/frame_sink.h"
#include "tests/fuzz/target.h"
#include "transports/tcp/frame_reader.h"
#include "transports/tcp/link_frames.h"

namespace unisono::fuzz {
namespace {

using tcp::FrameReader;

struct Frame {
  FrameHeader header;
  Bytes payload;
};

// What the stream says, read the simple way.
struct Expected {
  std::vector<Frame> frames;
  bool broken = false;
  bool ended = false;
  bool cut = false;
};

bool is_possible(const FrameHeader& header) {
  const auto kind = static_cast<int>(header.kind);
  const auto frame_class = static_cast<int>(header.frame_class);
  return header.payload_bytes <= kFramePayloadMax && kind >= 1 &&
         kind <= static_cast<int>(FrameKind::kTransport) && frame_class >= 1 && frame_class <= 2 &&
         header.reserved == 0;
}

Expected expected_of(std::span<const std::byte> wire) {
  Expected expected;
  while (wire.size() >= sizeof(FrameHeader)) {
    FrameHeader header;
    std::memcpy(&header, wire.data(), sizeof header);
    wire = wire.subspan(sizeof header);
    const bool goodbye = header.kind == tcp::kFrameGoodbye;
    expected.broken =
        expected.ended || (goodbye ? header.payload_bytes != 0 : !is_possible(header));
    if (expected.broken) return expected;
    expected.ended = goodbye;
    if (goodbye) continue;
    if (wire.size() < header.payload_bytes) {
      expected.cut = true;
      return expected;
    }
    const auto payload = wire.first(header.payload_bytes);
    expected.frames.push_back({header, {payload.begin(), payload.end()}});
    wire = wire.subspan(header.payload_bytes);
  }
  expected.cut = !wire.empty();
  return expected;
}

class Sink final : public StrictSink {
 public:
  using StrictSink::StrictSink;
  std::vector<Frame> frames;
  std::vector<bool> is_whole;  ///< by frame: nothing was discarded of it

  void deliver(Rank peer, const FrameHeader& header, std::size_t offset,
               std::span<const std::byte> piece) override {
    require(offset % 64 == 0 && reinterpret_cast<std::uintptr_t>(piece.data()) % 64 == 0,
            "a piece that is not aligned");
    StrictSink::deliver(peer, header, offset, piece);
  }
  void received(Rank peer, const FrameHeader& header) override {
    StrictSink::received(peer, header);
    is_whole.push_back(kind() != Placement::Kind::kDiscard);
    frames.push_back({header, {}});
    if (is_whole.back()) frames.back().payload.assign(memory().begin(), memory().end());
  }

  /// The operation fails: its memory goes away.
  void abandon(FrameReader* reader) {
    if (!open() || kind() != Placement::Kind::kInto || memory().empty()) return;
    reader->abandon(memory().data(), memory().size());
    give_back();
  }
};

// As recv and readv do it.
Status feed(FrameReader* reader, Sink* sink, std::span<const std::byte>* wire, std::size_t most) {
  std::array<iovec, 2> areas;
  const int used = reader->areas(&areas);
  std::size_t taken = 0;
  for (int i = 0; i < used; ++i) {
    require(areas[i].iov_len > 0, "nowhere to receive into");
    const std::size_t piece = std::min({areas[i].iov_len, wire->size(), most - taken});
    if (piece > 0) std::memcpy(areas[i].iov_base, wire->data(), piece);
    *wire = wire->subspan(piece);
    taken += piece;
    if (piece < areas[i].iov_len) break;
  }
  return reader->received(taken, *sink);
}

void fuzz_frames(std::span<const std::byte> input) {
  Input in(input);
  Dice dice(in.number<std::uint32_t>());
  std::span<const std::byte> wire = in.rest();
  const Expected expected = expected_of(wire);
  Sink sink(&dice);
  FrameReader reader(1);
  Status status;
  if (dice.below(4) == 0) {
    const std::size_t first = std::min<std::size_t>(wire.size(), dice.below(1000));
    status = reader.take(wire.first(first), sink);
    wire = wire.subspan(first);
  }
  const std::uint32_t most = dice.below(2) == 0 ? 100 : 400'000;
  while (status.ok() && !wire.empty()) {
    status = feed(&reader, &sink, &wire, 1 + dice.below(most));
    if (status.ok() && dice.below(16) == 0) sink.abandon(&reader);
  }
  require(status.ok() != expected.broken, "a stream is judged differently when it is cut");
  require(sink.frames.size() == expected.frames.size(), "a frame is lost or made up");
  for (std::size_t i = 0; i < sink.frames.size(); ++i) {
    const Frame &got = sink.frames[i], &sent = expected.frames[i];
    require(std::memcmp(&got.header, &sent.header, sizeof got.header) == 0, "another header");
    require(!sink.is_whole[i] || got.payload == sent.payload, "another payload");
  }
  if (!status.ok()) return;
  require(reader.ended() == expected.ended, "the goodbye is lost");
  require(reader.between_frames() != expected.cut, "a cut frame is not seen");
}

Bytes frame(std::uint32_t payload_bytes, FrameKind kind = FrameKind::kEager) {
  FrameHeader header;
  header.payload_bytes = payload_bytes;
  header.kind = kind;
  header.total_bytes = payload_bytes;
  return bytes_of(header) + Bytes(payload_bytes, std::byte{0x5a});
}

std::vector<Bytes> corpus() {
  const Bytes seed = bytes_of(std::uint32_t{7});
  const Bytes goodbye = bytes_of(tcp::link_frame(tcp::kFrameGoodbye, 2));
  FrameHeader too_large;
  too_large.payload_bytes = kFramePayloadMax + 1;
  return {seed,
          seed + frame(0) + frame(1) + frame(63) + frame(64, FrameKind::kData) + goodbye,
          seed + frame(700) + frame(65, FrameKind::kGrant) + frame(3),
          bytes_of(std::uint32_t{1}) + frame(3000, FrameKind::kData) + frame(17),
          seed + goodbye + frame(0),
          seed + frame(5) + bytes_of(too_large)};
}

}  // namespace

void add_frames(Targets* targets) { targets->push_back({"frames", fuzz_frames, corpus, 3000}); }

}  // namespace unisono::fuzz
