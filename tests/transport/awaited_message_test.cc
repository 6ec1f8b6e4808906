// Messages that their receiver takes from the ring by itself, past poll().
#include <gtest/gtest.h>

#include <functional>

#include "tests/transport/plain_ring.h"

namespace unisono::shm {
namespace {

constexpr std::uint32_t kCommunicator = 7;
constexpr std::uint32_t kTag = 5;

Frame make_message(std::uint64_t sequence, std::size_t bytes) {
  Frame frame = make_frame(sequence, bytes);
  frame.header.frame_class = FrameClass::kPointToPoint;
  frame.header.communicator = kCommunicator;
  frame.header.index = kTag;
  return frame;
}

struct Ring {
  Memory memory{kRingBytesMin};
  RingSender sender{memory.geometry()};
  RingReceiver receiver{memory.geometry(), 0};

  TakeResult take(std::vector<std::byte>& room) {
    AwaitedMessage awaited{kCommunicator, kTag, room};
    const TakeResult result = receiver.take_awaited(awaited);
    credit = awaited.credit;
    return result;
  }

  std::uint64_t credit = 0;  // that came with the last one
};

TEST(AwaitedMessage, OfEverySizeIsTakenFromEveryPosition) {
  Ring ring;
  std::uint64_t sequence = 0;
  // The ring has 62 lines and a record takes 1 to 16: all offsets of the wrap are met.
  for (int round = 0; round < 70; ++round) {
    for (std::size_t bytes = 0; bytes <= 960; bytes += 31) {
      std::vector<std::byte> room(bytes);
      ASSERT_EQ(ring.take(room), TakeResult::kNothing);
      const Frame frame = make_message(sequence++, bytes);
      ASSERT_EQ(ring.sender.push(frame.header, frame.payload), Pushed::kWhole) << bytes;
      ASSERT_EQ(ring.take(room), TakeResult::kTaken) << bytes;
      ASSERT_EQ(room, frame.payload) << bytes;
    }
  }
}

TEST(AwaitedMessage, AnyOtherFrameIsLeftToPoll) {
  const std::vector<std::function<void(FrameHeader*)>> changes{
      [](FrameHeader* header) { header->kind = FrameKind::kAnnounce; },
      [](FrameHeader* header) { header->kind = static_cast<FrameKind>(77); },
      [](FrameHeader* header) { header->frame_class = FrameClass::kCollective; },
      [](FrameHeader* header) { header->communicator = kCommunicator + 1; },
      [](FrameHeader* header) { header->index = kTag + 1; },
      [](FrameHeader* header) { header->total_bytes += 1; },
  };
  for (const std::size_t bytes : {4u, 100u}) {
    for (std::size_t at = 0; at < changes.size(); ++at) {
      Ring ring;
      Frame frame = make_message(0, bytes);
      changes[at](&frame.header);
      ASSERT_EQ(ring.sender.push(frame.header, frame.payload), Pushed::kWhole);
      std::vector<std::byte> room(bytes);
      EXPECT_EQ(ring.take(room), TakeResult::kOther) << bytes << " bytes, change " << at;
      EXPECT_EQ(room, std::vector<std::byte>(bytes)) << "nothing was to be written";
    }
  }
}

TEST(AwaitedMessage, BringsTheCreditThatCameWithIt) {
  Ring ring;
  std::vector<std::byte> room(100);
  Frame frame = make_message(0, room.size());
  for (const std::uint64_t credit : {std::uint64_t{70'000}, std::uint64_t{0}}) {
    frame.header.offset = credit;
    ASSERT_EQ(ring.sender.push(frame.header, frame.payload), Pushed::kWhole);
    ASSERT_EQ(ring.take(room), TakeResult::kTaken);
    EXPECT_EQ(room, frame.payload);
    EXPECT_EQ(ring.credit, credit);
  }
}

TEST(AwaitedMessage, OfAFewBytesThatBringsCreditIsLeftToPoll) {
  Ring ring;
  Recorder recorder;
  std::vector<std::byte> room(4);
  Frame frame = make_message(0, room.size());
  frame.header.offset = 70'000;
  ASSERT_EQ(ring.sender.push(frame.header, frame.payload), Pushed::kWhole);
  EXPECT_EQ(ring.take(room), TakeResult::kOther);
  take_all(ring.receiver, recorder);
  EXPECT_EQ(recorder.count(0), 1u);
}

TEST(AwaitedMessage, OfAnotherLengthIsLeftToPoll) {
  for (const std::size_t bytes : {0u, 3u, 5u, 99u, 101u}) {
    for (const std::size_t room_bytes : {4u, 100u}) {
      Ring ring;
      Recorder recorder;
      const Frame frame = make_message(0, bytes);
      ASSERT_EQ(ring.sender.push(frame.header, frame.payload), Pushed::kWhole);
      std::vector<std::byte> room(room_bytes);
      EXPECT_EQ(ring.take(room), TakeResult::kOther) << bytes;
      take_all(ring.receiver, recorder);
      EXPECT_EQ(recorder.count(0), 1u) << bytes;
    }
  }
}

TEST(AwaitedMessage, InPiecesIsLeftToPollAlsoInItsMidst) {
  Ring ring;
  Recorder recorder;
  std::vector<std::byte> room(20'000);
  const Frame frame = make_message(0, room.size());
  ASSERT_EQ(ring.sender.push(frame.header, frame.payload), Pushed::kPart);
  EXPECT_EQ(ring.take(room), TakeResult::kOther);
  ASSERT_EQ(ring.receiver.take(recorder), Took::kRecord);
  ASSERT_TRUE(ring.receiver.reading());
  // A short one cannot begin before it has ended, whatever the writer claims.
  const std::size_t next = 1 + ring.memory.geometry().piece_bytes(room.size()) / kLineBytes;
  ring.memory.write_word(ring.memory.line(next), (1u << 31) | 100u);
  std::vector<std::byte> short_room(100);
  EXPECT_EQ(ring.take(short_room), TakeResult::kOther);
}

TEST(AwaitedMessage, ItsWriterHearsThatTheLinesAreFree) {
  Ring ring;
  std::vector<std::byte> room(900);
  for (std::uint64_t sequence = 0; sequence < 100; ++sequence) {
    const Frame frame = make_message(sequence, room.size());
    ASSERT_EQ(ring.sender.push(frame.header, frame.payload), Pushed::kWhole) << sequence;
    ASSERT_EQ(ring.take(room), TakeResult::kTaken);
  }
}

}  // namespace
}  // namespace unisono::shm
