// The parts of the stream transport that know no sockets: reader, writer, link states, addresses.
#include <gtest/gtest.h>

#include <random>

#include "tests/unit/stream_fixture.h"
#include "transports/tcp/frame_reader.h"
#include "transports/tcp/frame_writer.h"
#include "transports/tcp/link_frames.h"
#include "transports/tcp/peer_address.h"
#include "transports/tcp/peer_link.h"

namespace unisono::tcp {
namespace {

using test::frame_of;
using test::pattern;
using test::RecordingSink;
using Bytes = std::vector<std::byte>;

void append(Bytes* wire, const FrameHeader& header, const Bytes& payload = {}) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&header);
  wire->insert(wire->end(), bytes, bytes + sizeof header);
  wire->insert(wire->end(), payload.begin(), payload.end());
}

// As recv and readv do: the areas are filled in their order, with at most `most` bytes.
Status feed(FrameReader* reader, RecordingSink* sink, std::span<const std::byte>* wire,
            std::size_t most) {
  std::array<iovec, 2> areas;
  const int used = reader->areas(&areas);
  std::size_t taken = 0;
  for (int i = 0; i < used; ++i) {
    EXPECT_GT(areas[i].iov_len, 0u);
    const std::size_t piece = std::min({areas[i].iov_len, wire->size(), most - taken});
    std::memcpy(areas[i].iov_base, wire->data(), piece);
    *wire = wire->subspan(piece);
    taken += piece;
    if (piece < areas[i].iov_len) break;
  }
  return reader->received(taken, *sink);
}

class FrameReaderSplits : public testing::TestWithParam<int> {};

TEST_P(FrameReaderSplits, EveryFrameArrivesWhole) {
  std::mt19937 random(GetParam());
  const std::size_t sizes[] = {0, 1, 63, 64, 65, 500, 4096, 16384, 100000, kFramePayloadMax};
  Bytes wire;
  std::vector<Bytes> payloads;
  for (int i = 0; i < 60; ++i) {
    const std::size_t bytes = random() % 2 ? sizes[random() % 10] : random() % 2000;
    payloads.push_back(pattern(bytes, i));
    append(&wire, frame_of(i, bytes), payloads.back());
  }
  RecordingSink sink;
  sink.choose = [&](const FrameHeader& header) {
    return static_cast<Placement::Kind>((header.sequence + GetParam()) % 3);
  };
  FrameReader reader(1);
  std::span<const std::byte> rest = wire;
  while (!rest.empty()) {
    const std::size_t most = random() % 3 == 0 ? 1 + random() % 100 : 1 + random() % 400000;
    ASSERT_TRUE(feed(&reader, &sink, &rest, most).ok());
  }
  ASSERT_EQ(sink.frames.size(), payloads.size());
  EXPECT_TRUE(reader.between_frames());
  for (std::size_t i = 0; i < payloads.size(); ++i) {
    EXPECT_EQ(sink.frames[i].header.sequence, i);
    if (sink.choose(sink.frames[i].header) == Placement::Kind::kDiscard) continue;
    EXPECT_EQ(sink.frames[i].payload, payloads[i]) << i;
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, FrameReaderSplits, testing::Range(1, 40));

TEST(FrameReader, TakesBytesThatLieElsewhere) {
  Bytes wire;
  const Bytes payload = pattern(5000, 3);
  append(&wire, frame_of(0, 5000), payload);
  append(&wire, frame_of(1, 0));
  RecordingSink sink;
  FrameReader reader(1);
  ASSERT_TRUE(reader.take(std::span(wire).first(700), sink).ok());
  ASSERT_TRUE(reader.take(std::span(wire).subspan(700), sink).ok());
  ASSERT_EQ(sink.frames.size(), 2u);
  EXPECT_EQ(sink.frames[0].payload, payload);
}

TEST(FrameReader, RefusesHostileHeaders) {
  auto too_long = frame_of(0, kFramePayloadMax + 1), no_kind = frame_of(0, 0),
       high_kind = frame_of(0, 0), no_class = frame_of(0, 0), reserved = frame_of(0, 0),
       goodbye = link_frame(kFrameGoodbye, 1), late = link_frame(kFrameAdmitted, 0);
  no_kind.kind = static_cast<FrameKind>(0);
  high_kind.kind = static_cast<FrameKind>(200);
  no_class.frame_class = static_cast<FrameClass>(7);
  reserved.reserved = 1;
  goodbye.payload_bytes = 5;
  auto longest = frame_of(0, 0);
  longest.payload_bytes = 0xffffffff;
  for (const FrameHeader& header :
       {too_long, no_kind, high_kind, no_class, reserved, goodbye, late, longest}) {
    Bytes wire;
    append(&wire, header);
    RecordingSink sink;
    FrameReader reader(4);
    std::span<const std::byte> rest = wire;
    const Status status = feed(&reader, &sink, &rest, wire.size());
    EXPECT_EQ(status.code(), ErrorCode::kProtocol);
    EXPECT_EQ(status.rank(), 4);
    EXPECT_TRUE(sink.frames.empty());
  }
}

TEST(FrameReader, StreamsBehindTheFirstCarryDataAndItsEndAlone) {
  for (int kind = 1; kind <= static_cast<int>(FrameKind::kTransport); ++kind) {
    const bool is_data = static_cast<FrameKind>(kind) == FrameKind::kData ||
                         static_cast<FrameKind>(kind) == FrameKind::kLeft;
    for (const auto carries :
         {FrameReader::Carries::kEverything, FrameReader::Carries::kDataOnly}) {
      Bytes wire;
      append(&wire, frame_of(0, 0, static_cast<FrameKind>(kind)));
      RecordingSink sink;
      FrameReader reader(4, carries);
      std::span<const std::byte> rest = wire;
      const Status status = feed(&reader, &sink, &rest, wire.size());
      const bool admitted = is_data || carries == FrameReader::Carries::kEverything;
      EXPECT_EQ(status.ok(), admitted) << kind;
      EXPECT_EQ(sink.frames.size(), admitted ? 1u : 0u) << kind;
      if (admitted) continue;
      EXPECT_EQ(status.code(), ErrorCode::kProtocol);
      EXPECT_EQ(status.rank(), 4);
    }
  }
  Bytes wire;
  append(&wire, link_frame(kFrameGoodbye, 2));
  RecordingSink sink;
  FrameReader reader(1, FrameReader::Carries::kDataOnly);
  std::span<const std::byte> rest = wire;
  EXPECT_TRUE(feed(&reader, &sink, &rest, wire.size()).ok());
  EXPECT_TRUE(reader.ended());
}

TEST(FrameReader, RandomBytesNeverWriteWhereTheyMustNot) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    Bytes wire;
    for (int i = 0; i < 6; ++i) {
      auto header = frame_of(i, random() % 300);
      const Bytes payload = pattern(header.payload_bytes, i);
      append(&wire, header, payload);
    }
    for (int flips = random() % 4; flips > 0; --flips) {
      wire[random() % wire.size()] ^= static_cast<std::byte>(1 << random() % 8);
    }
    RecordingSink sink;
    sink.choose = [&](const FrameHeader&) { return static_cast<Placement::Kind>(random() % 3); };
    FrameReader reader(1);
    std::span<const std::byte> rest = wire;
    while (!rest.empty() && feed(&reader, &sink, &rest, 1 + random() % 500).ok()) {
    }
    EXPECT_LE(sink.frames.size(), wire.size() / sizeof(FrameHeader));
  }
}

TEST(FrameReader, GoodbyeEndsTheStreamAndNothingMayFollow) {
  Bytes wire;
  append(&wire, link_frame(kFrameGoodbye, 2));
  RecordingSink sink;
  FrameReader reader(1);
  std::span<const std::byte> rest = wire;
  ASSERT_TRUE(feed(&reader, &sink, &rest, wire.size()).ok());
  EXPECT_TRUE(reader.ended());
  EXPECT_EQ(reader.ended_streams(), 2u);
  Bytes more;
  append(&more, frame_of(0, 0));
  rest = more;
  EXPECT_EQ(feed(&reader, &sink, &rest, more.size()).code(), ErrorCode::kProtocol);
}

TEST(FrameReader, AbandonedMemoryIsNotWritten) {
  Bytes wire;
  const Bytes payload = pattern(100000, 1);
  append(&wire, frame_of(0, payload.size()), payload);
  append(&wire, frame_of(1, 10), pattern(10, 2));
  struct Sink final : FrameSink {
    Bytes target = Bytes(100000);
    int received_count = 0;
    Placement place(Rank, const FrameHeader&) override {
      return {Placement::Kind::kInto, target.data()};
    }
    void deliver(Rank, const FrameHeader&, std::size_t, std::span<const std::byte>) override {}
    void received(Rank, const FrameHeader&) override { ++received_count; }
    void sent(Rank, std::uint64_t) override {}
    void closed(Rank, const Status&) override {}
  } sink;
  FrameReader reader(1);
  ASSERT_TRUE(reader.take(std::span(wire).first(20000), sink).ok());
  reader.abandon(sink.target.data() + 100000, 100);  // not this memory: goes on
  ASSERT_TRUE(reader.take(std::span(wire).subspan(20000, 1000), sink).ok());
  EXPECT_EQ(sink.target[20500], payload[20500]);
  reader.abandon(sink.target.data(), sink.target.size());
  sink.target.assign(100000, std::byte{0});
  ASSERT_TRUE(reader.take(std::span(wire).subspan(21000, 79064), sink).ok());
  EXPECT_EQ(sink.target, Bytes(100000));
  EXPECT_EQ(sink.received_count, 1);
  ASSERT_TRUE(reader.take(std::span(wire).subspan(100064), sink).ok());
  EXPECT_EQ(sink.received_count, 2);
}

Bytes gathered(FrameWriter& writer, std::size_t most) {
  iovec parts[16];
  Bytes out;
  const int used = writer.gather(parts, 1 << 20);
  for (int i = 0; i < used; ++i) {
    const auto* bytes = static_cast<const std::byte*>(parts[i].iov_base);
    out.insert(out.end(), bytes, bytes + parts[i].iov_len);
  }
  out.resize(std::min(out.size(), most));
  return out;
}

TEST(FrameWriter, SendsTheSameBytesHoweverTheyAreCut) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    FrameWriter writer;
    std::vector<Bytes> payloads;
    for (int i = 0; i < 20; ++i) payloads.push_back(pattern(random() % 3 ? random() % 300 : 0, i));
    Bytes expected, wire;
    std::vector<std::uint64_t> ended, lent;
    for (std::uint64_t i = 0; i < payloads.size(); ++i) {
      append(&expected, frame_of(i, payloads[i].size()), payloads[i]);
      writer.push(frame_of(i, payloads[i].size()), payloads[i], i);
      if (!payloads[i].empty()) lent.push_back(i);
    }
    while (!writer.empty()) {
      const Bytes some = gathered(writer, 1 + random() % 500);
      wire.insert(wire.end(), some.begin(), some.end());
      writer.advance(some.size(), [&](std::uint64_t token) { ended.push_back(token); });
      ASSERT_EQ(writer.queued_bytes(), expected.size() - wire.size());
    }
    ASSERT_EQ(wire, expected);
    ASSERT_EQ(ended, lent);
  }
}

TEST(FrameWriter, ACancelledFrameThatHasBegunIsCompletedFromACopy) {
  FrameWriter writer;
  Bytes first = pattern(200, 1), second = pattern(200, 2), third = pattern(200, 3);
  Bytes expected;
  append(&expected, frame_of(1, 200, FrameKind::kData), first);
  append(&expected, frame_of(3, 200, FrameKind::kData), third);
  writer.push(frame_of(1, 200, FrameKind::kData), first, 77);
  writer.push(frame_of(2, 200, FrameKind::kData), second, 77);
  writer.push(frame_of(3, 200, FrameKind::kData), third, 78);
  const auto none = [](std::uint64_t token) { FAIL() << "sent(" << token << ")"; };
  Bytes wire = gathered(writer, 100);
  writer.advance(wire.size(), none);
  writer.cancel(77);
  first.assign(200, std::byte{0});
  second.assign(200, std::byte{0});
  EXPECT_EQ(writer.queued_bytes(), 2 * 264u - 100);
  const Bytes rest = gathered(writer, 10000);
  wire.insert(wire.end(), rest.begin(), rest.end());
  EXPECT_EQ(wire, expected);
  std::vector<std::uint64_t> ended;
  writer.advance(rest.size(), [&](std::uint64_t token) { ended.push_back(token); });
  EXPECT_EQ(ended, std::vector<std::uint64_t>{78});
  EXPECT_TRUE(writer.empty());
}

// What is sent next has no payload to be cancelled, and would be taken for the message before it.
TEST(FrameWriter, ACancelledEagerFrameIsSentAllTheSame) {
  FrameWriter writer;
  Bytes first = pattern(200, 1), second = pattern(300, 2), third = pattern(100, 3);
  Bytes expected;
  append(&expected, frame_of(1, 200), first);
  append(&expected, frame_of(2, 300), second);
  append(&expected, frame_of(3, 100), third);
  append(&expected, frame_of(4, 0), {});
  writer.push(frame_of(1, 200), first, 77);
  writer.push(frame_of(2, 300), second, 78);
  writer.push(frame_of(3, 100), third, 79);
  writer.push(frame_of(4, 0), {}, 0);
  const auto none = [](std::uint64_t token) { FAIL() << "sent(" << token << ")"; };
  Bytes wire = gathered(writer, 100);
  writer.advance(wire.size(), none);
  for (const std::uint64_t token : {78, 77, 79}) writer.cancel(token);
  for (Bytes* const lent : {&first, &second, &third}) lent->assign(lent->size(), std::byte{0});
  const Bytes rest = gathered(writer, 10000);
  wire.insert(wire.end(), rest.begin(), rest.end());
  EXPECT_EQ(wire, expected);
  writer.advance(rest.size(), none);
  EXPECT_TRUE(writer.empty());
  EXPECT_EQ(writer.queued_bytes(), 0u);
}

// What a writer with checksums sends: frames of several sizes, one of them cancelled on the way.
Bytes summed_wire(const std::vector<Bytes>& payloads) {
  FrameWriter writer(true);
  Bytes wire;
  for (std::size_t i = 0; i < payloads.size(); ++i) {
    writer.push(frame_of(i, payloads[i].size()), payloads[i], i);
  }
  const Bytes given_up = pattern(300, 9);
  writer.push(frame_of(98, given_up.size(), FrameKind::kData), given_up, 98);
  writer.push(frame_of(99, 0), {}, 99);
  // Both have their checksums when the first of them is dropped.
  gathered(writer, 0);
  writer.cancel(98);
  while (!writer.empty()) {
    const Bytes some = gathered(writer, 1000);
    wire.insert(wire.end(), some.begin(), some.end());
    writer.advance(some.size(), [](std::uint64_t) {});
  }
  return wire;
}

Status read_summed(std::span<const std::byte> wire, RecordingSink* sink, std::mt19937& random) {
  sink->choose = [](const FrameHeader& header) {
    return static_cast<Placement::Kind>(header.sequence % 3);
  };
  FrameReader reader(4, FrameReader::Carries::kEverything, true);
  while (!wire.empty()) UNISONO_TRY(feed(&reader, sink, &wire, 1 + random() % 3000));
  EXPECT_TRUE(reader.between_frames());
  return {};
}

TEST(FrameSums, LetWhatIsWholePassAndNothingElse) {
  std::mt19937 random(3);
  std::vector<Bytes> payloads;
  for (const std::size_t bytes : {0, 1, 64, 1000, 0, 5000}) {
    payloads.push_back(pattern(bytes, static_cast<int>(payloads.size())));
  }
  const Bytes wire = summed_wire(payloads);
  RecordingSink whole;
  ASSERT_TRUE(read_summed(wire, &whole, random).ok());
  ASSERT_EQ(whole.frames.size(), payloads.size() + 1);
  for (std::size_t i = 0; i < payloads.size(); ++i) {
    if (i % 3 == 2) continue;
    EXPECT_EQ(whole.frames[i].payload, payloads[i]) << i;
  }
  EXPECT_EQ(whole.frames.back().header.sequence, 99u);

  for (std::size_t at = 0; at < wire.size(); at += at < 400 ? 1 : 1 + random() % 20) {
    Bytes flipped = wire;
    flipped[at] ^= static_cast<std::byte>(1 << random() % 8);
    RecordingSink sink;
    const Status status = read_summed(flipped, &sink, random);
    ASSERT_EQ(status.code(), ErrorCode::kCorrupted) << at;
    EXPECT_EQ(status.rank(), 4);
    EXPECT_LT(sink.frames.size(), whole.frames.size()) << at;
  }
}

TEST(FrameSums, FindFramesThatAreLostOrComeTwice) {
  std::mt19937 random(4);
  const Bytes wire = summed_wire({pattern(100, 1), pattern(100, 2)});
  const std::size_t frame = sizeof(FrameHead) + 100;
  Bytes lost(wire.begin() + static_cast<std::ptrdiff_t>(frame), wire.end());
  Bytes twice(wire.begin(), wire.begin() + static_cast<std::ptrdiff_t>(frame));
  twice.insert(twice.end(), wire.begin(), wire.end());
  for (const Bytes& each : {lost, twice}) {
    RecordingSink sink;
    EXPECT_EQ(read_summed(each, &sink, random).code(), ErrorCode::kCorrupted);
  }
}

TEST(LinkState, FollowsItsTable) {
  using S = LinkState;
  const S all[] = {S::kIdle, S::kDialling, S::kStanding, S::kLeaving, S::kEnded};
  const S after_wanted[] = {S::kDialling, S::kDialling, S::kStanding, S::kLeaving, S::kEnded};
  const S after_attached[] = {S::kStanding, S::kStanding, S::kStanding, S::kLeaving, S::kEnded};
  const S after_leave[] = {S::kIdle, S::kDialling, S::kLeaving, S::kLeaving, S::kEnded};
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(next_state(all[i], LinkEvent::kWanted), after_wanted[i]) << i;
    EXPECT_EQ(next_state(all[i], LinkEvent::kAttached), after_attached[i]) << i;
    EXPECT_EQ(next_state(all[i], LinkEvent::kLeave), after_leave[i]) << i;
    EXPECT_EQ(next_state(all[i], LinkEvent::kEnd), S::kEnded);
  }
}

TEST(PeerLink, OfTwoCrossingConnectionsTheLowerRanksIsAdmitted) {
  PeerLink lower(2, 5), higher(5, 2);
  EXPECT_EQ(lower.admit(0, true), Admission::kCrossing);
  EXPECT_EQ(higher.admit(0, true), Admission::kAdmitted);
  EXPECT_EQ(lower.admit(0, false), Admission::kAdmitted);
  EXPECT_EQ(lower.admit(1, false), Admission::kUnwanted);
  EXPECT_EQ(lower.admit(900, false), Admission::kUnwanted);
}

TEST(PeerAddress, RoundTrips) {
  const auto tcp = parse_address(tcp_address_text(4411, {"10.0.0.5", "fd00::2"}));
  ASSERT_TRUE(tcp.has_value());
  ASSERT_EQ(tcp->size(), 2u);
  EXPECT_EQ(to_text((*tcp)[0]), "10.0.0.5:4411");
  EXPECT_EQ(to_text((*tcp)[1]), "[fd00::2]:4411");
  const auto local = parse_address(unix_address_text("unisono-x"));
  ASSERT_TRUE(local.has_value());
  EXPECT_EQ(to_text(local->front()), "UNIX socket @unisono-x");
}

TEST(PeerAddress, RefusesWhatNoRankPublishes) {
  std::string many = "tcp:1:";
  for (int i = 0; i < 17; ++i) many += "10.0.0.1,";
  for (const std::string& text :
       {std::string(), std::string("tcp:"), std::string("tcp:0:10.0.0.1"),
        std::string("tcp:65536:10.0.0.1"), std::string("tcp:-1:10.0.0.1"),
        std::string("tcp:12x:10.0.0.1"), std::string("tcp:12:"), std::string("tcp:12:host"),
        std::string("tcp:12:,"), std::string("tcp:12:10.0.0.1,,10.0.0.2"), std::string("unix:"),
        "unix:" + std::string(120, 'x'), std::string("udp:1:10.0.0.1"), many,
        "tcp:1:" + std::string(600, '1'), std::string("unix:a\0b", 8)}) {
    const auto parsed = parse_address(text);
    ASSERT_FALSE(parsed.has_value()) << text;
    EXPECT_EQ(parsed.error().code(), ErrorCode::kInvalidArgument);
  }
}

TEST(PeerAddress, TextStaysWithinItsBound) {
  const std::vector<std::string> addresses(40, "fd00:1111:2222:3333:4444:5555:6666:7777");
  const std::string text = tcp_address_text(65535, addresses);
  EXPECT_LE(text.size(), kAddressBytesMax);
  EXPECT_TRUE(parse_address(text).has_value());
  const auto many = parse_address(tcp_address_text(1, std::vector<std::string>(20, "10.0.0.1")));
  ASSERT_TRUE(many.has_value());
  EXPECT_EQ(many->size(), kTargetsMax);
}

}  // namespace
}  // namespace unisono::tcp
