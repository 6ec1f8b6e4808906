// Buffers that go back and forth between the two rings of a pair of ranks.
#include <gtest/gtest.h>

#include <thread>

#include "tests/support/seed.h"
#include "tests/transport/plain_ring.h"

namespace unisono::shm {
namespace {

constexpr std::size_t kRingBytes = std::size_t{256} << 10;  // two buffers

/// What one rank has of the rings to and from another.
struct Side {
  Side(const Memory& out, const Memory& in, bool is_first)
      : buffers(in.geometry().buffer_count, is_first),
        sender(out.geometry(), &buffers),
        receiver(in.geometry(), 0, nullptr, &buffers) {
    buffers.add_theirs(in.geometry().buffers, in.geometry().buffer_bytes);
    buffers.add_own(out.geometry().buffers, out.geometry().buffer_bytes);
  }
  void send(std::size_t bytes) {
    const Frame frame = make_frame(sent++, bytes);
    ASSERT_EQ(sender.push(frame.header, frame.payload), Pushed::kWhole) << bytes;
  }
  /// Takes what has come; the recorder compares it with what was sent.
  void take(std::uint64_t frames) {
    take_all(receiver, recorder);
    ASSERT_TRUE(receiver.end().ok());
    ASSERT_EQ(recorder.count(0), frames);
  }

  PassedBuffers buffers;
  RingSender sender;
  RingReceiver receiver;
  Recorder recorder;
  std::uint64_t sent = 0;
};

struct Pair {
  Memory memory[2]{Memory(kRingBytes), Memory(kRingBytes)};
  Side left{memory[0], memory[1], true};
  Side right{memory[1], memory[0], false};

  /// Whether the buffer at `index` of a ring holds the payload of that frame.
  bool is_in_buffer(int ring, int index, std::uint64_t sequence, std::size_t bytes) const {
    const RingGeometry geometry = memory[ring].geometry();
    const std::size_t offset = static_cast<std::size_t>(index) * geometry.buffer_bytes;
    return std::memcmp(geometry.buffers + offset, make_frame(sequence, bytes).payload.data(),
                       bytes) == 0;
  }
};

TEST(PassedBuffers, AreAnEighthOfARingAtMost) {
  EXPECT_EQ(Memory(kRingBytesMin).geometry().buffer_count, 0);
  EXPECT_EQ(Memory(std::size_t{4} << 20).geometry().buffer_count, kRingBuffersMax);
  const Memory memory(kRingBytes);
  const RingGeometry geometry = memory.geometry();
  EXPECT_EQ(geometry.buffer_count, 2);
  EXPECT_LE(geometry.buffers + 2 * geometry.buffer_bytes, memory.ring().base + kRingBytes);
  EXPECT_LE(2 * geometry.buffer_bytes, kRingBytes / 8);
}

TEST(PassedBuffers, OfALargeRingTakeAWholeFrameInQuarters) {
  const Memory out(std::size_t{2} << 20), in(std::size_t{2} << 20);
  Side side(out, in, true);
  side.send(kFramePayloadMax);
  EXPECT_EQ(side.buffers.take(), -1) << "a quarter went another way";
}

TEST(PassedBuffers, TheAnswerGoesInTheBufferThatCameLast) {
  Pair pair;
  pair.left.send(4000);
  EXPECT_TRUE(pair.is_in_buffer(0, 1, 0, 4000));
  pair.right.take(1);
  pair.right.send(3000);
  EXPECT_TRUE(pair.is_in_buffer(0, 1, 0, 3000)) << "the ring's own buffers are used instead";
  pair.left.take(1);
  pair.left.send(2000);
  EXPECT_TRUE(pair.is_in_buffer(0, 1, 1, 2000));
  pair.right.take(2);
}

TEST(PassedBuffers, WithoutOneThePieceGoesThroughTheRing) {
  Pair pair;
  for (std::uint64_t i = 0; i < 200; ++i) {  // the ring goes around several times
    pair.left.send(10'000);
    pair.right.take(i + 1);
  }
  for (std::uint64_t i = 0; i < 200; ++i) {
    pair.right.send(10'000);
    pair.left.take(i + 1);
  }
}

TEST(PassedBuffers, ShortPiecesAndLongMessagesLeaveThemAlone) {
  Pair pair;
  pair.left.send(kPassedBytesMin - 1);
  Frame frame = make_frame(1, 20'000);
  frame.header.total_bytes = kFramePayloadMax + 1;
  ASSERT_EQ(pair.left.sender.push(frame.header, frame.payload), Pushed::kWhole);
  EXPECT_FALSE(pair.is_in_buffer(0, 1, 1, 10'000));
  EXPECT_FALSE(pair.is_in_buffer(0, 0, 1, 10'000));
}

TEST(PassedBuffers, CarryMixedMessagesInAnyOrder) {
  const test::SeedTrace trace;
  auto random = test::random_stream(1);
  Pair pair;
  for (int step = 0; step < 20'000; ++step) {
    Side& from = random() % 2 == 0 ? pair.left : pair.right;
    Side& to = &from == &pair.left ? pair.right : pair.left;
    from.send(random() % 3 == 0 ? random() % 60'000 : random() % 2000);
    if (random() % 2 == 0 || from.sent > to.recorder.count(0) + 2) to.take(from.sent);
    if (HasFatalFailure()) return;
  }
  pair.left.take(pair.right.sent);
  pair.right.take(pair.left.sent);
}

TEST(PassedBuffers, AreReadBeforeTheirNewOwnerWritesThem) {
  Pair pair;
  const auto exchange = [](Side& side) {
    for (std::uint64_t i = 0; i < 3000; ++i) {
      side.send(1000 + i % 3 * 20'000);
      while (side.recorder.count(0) <= i) {
        if (side.receiver.take(side.recorder) == Took::kNothing) std::this_thread::yield();
      }
    }
  };
  std::thread right([&] { exchange(pair.right); });
  exchange(pair.left);
  right.join();
  EXPECT_EQ(pair.left.recorder.count(0), 3000u);
}

TEST(PassedBuffers, AnAwaitedMessageBringsOneToo) {
  Pair pair;
  for (const std::size_t bytes : {std::size_t{600}, std::size_t{16'000}, std::size_t{700}}) {
    Frame frame = make_frame(0, bytes);
    frame.header.frame_class = FrameClass::kPointToPoint;
    frame.header.communicator = 7;
    ASSERT_EQ(pair.left.sender.push(frame.header, frame.payload), Pushed::kWhole);
    std::vector<std::byte> room(bytes);
    AwaitedMessage awaited{7, 0, room};
    ASSERT_EQ(pair.right.receiver.take_awaited(awaited), TakeResult::kTaken);
    EXPECT_EQ(room, frame.payload);
  }
  pair.right.send(3000);
  EXPECT_TRUE(pair.is_in_buffer(0, 0, 0, 3000)) << "not in that of the second message";
}

/// Of a first word as a hostile peer may write it.
Status end_after(std::uint32_t word, PassedBuffers* buffers) {
  const Memory memory(kRingBytes);
  const FrameHeader header;
  std::memcpy(memory.line(0), &header, sizeof header);
  memory.write_word(memory.line(0), word);
  RingReceiver receiver(memory.geometry(), 3, nullptr, buffers);
  std::vector<std::byte> room(word & 0xfffff);
  AwaitedMessage awaited{0, 0, room};
  EXPECT_EQ(receiver.take_awaited(awaited), TakeResult::kOther);
  Recorder recorder;
  EXPECT_EQ(receiver.take(recorder), Took::kEnd);
  return receiver.end();
}

TEST(PassedBuffers, OnesThatThePeerDoesNotHaveEndTheLink) {
  constexpr std::uint32_t kFlag = 1u << 31, kPassed = 1u << 24;
  const auto number = [](std::uint32_t n) { return n << 20; };
  PassedBuffers buffers(2, true);  // 0 and 1 are this rank's
  EXPECT_EQ(end_after(kFlag | kPassed | 1000, nullptr).code(), ErrorCode::kProtocol);
  for (const std::uint32_t n : {0u, 1u, 4u, 15u}) {
    EXPECT_EQ(end_after(kFlag | kPassed | number(n) | 1000, &buffers).code(), ErrorCode::kProtocol)
        << n;
  }
  EXPECT_EQ(end_after(kFlag | number(2) | 1000, &buffers).code(), ErrorCode::kProtocol)
      << "a number without the flag";
  EXPECT_EQ(end_after(kFlag | kPassed | number(2) | 200'000, &buffers).code(), ErrorCode::kProtocol)
      << "a quarter that is longer than a buffer";
  EXPECT_EQ(end_after(kFlag | kPassed | 1u << 29 | number(2) | 16, &buffers).code(),
            ErrorCode::kProtocol)
      << "inline";
  EXPECT_EQ(end_after(kFlag | kPassed | 1u << 28 | number(2) | 100, &buffers).code(),
            ErrorCode::kProtocol)
      << "lent";
}

}  // namespace
}  // namespace unisono::shm
