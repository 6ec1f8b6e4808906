// What a hostile peer may write into a ring.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/seed.h"
#include "tests/transport/plain_ring.h"
#include "transports/shm/shm_transport.h"

namespace unisono::shm {
namespace {

TEST(HostileRing, CounterThatGoesBackStopsTheSender) {
  const Memory memory(kRingBytesMin);
  RingSender sender(memory.geometry());
  const auto fill = [&] {
    Pushed pushed = Pushed::kWhole;
    for (std::uint64_t sequence = 0; pushed == Pushed::kWhole && sequence < 10'000; ++sequence) {
      const Frame frame = make_frame(sequence, 0);
      pushed = sender.push(frame.header, frame.payload);
    }
    return pushed;
  };
  ASSERT_EQ(fill(), Pushed::kNothing);
  // As a reader of two lines would, and as none does after it.
  std::uint64_t consumed = 2;
  std::memcpy(memory.bytes().data(), &consumed, sizeof consumed);
  ASSERT_EQ(fill(), Pushed::kNothing);
  consumed = 1;
  std::memcpy(memory.bytes().data(), &consumed, sizeof consumed);
  EXPECT_EQ(fill(), Pushed::kBroken);
}

TEST(HostileRing, ImpossibleWordAboutALoanStopsTheSender) {
  LendingRing ring;
  const Frame frame = make_frame(0, 20'000);
  ASSERT_EQ(ring.lend(frame), Pushed::kPart);
  ring.memory.write_word(ring.memory.line(1), 17);
  EXPECT_EQ(ring.sender.resume(), Pushed::kBroken);
  ring.sender.withdraw();
}

TEST(HostileRing, WhoReadsForEverDoesNotHoldTheLender) {
  LendingRing ring;
  const Frame frame = make_frame(0, 20'000);
  ASSERT_EQ(ring.lend(frame), Pushed::kPart);
  // "I am reading, as a thread of your process": neither is true.
  ring.memory.write_word(ring.memory.line(1), 3);
  ring.memory.write_word(ring.memory.line(1) + 8, static_cast<std::uint32_t>(MemoryPath::kPointer));
  EXPECT_EQ(ring.sender.resume(), Pushed::kPart);
  ring.sender.detach();
  EXPECT_TRUE(ring.sender.writing());
}

/// One header line as a hostile peer may write it, taken by a fresh receiver.
Status end_after(const FrameHeader& header, std::uint32_t first_word) {
  const Memory memory(kRingBytesMin);
  std::memcpy(memory.line(0), &header, sizeof header);
  memory.write_word(memory.line(0), first_word);
  RingReceiver receiver(memory.geometry(), 3);
  Recorder recorder;
  EXPECT_EQ(receiver.take(recorder), Took::kEnd);
  EXPECT_EQ(recorder.count(3), 0u);
  return receiver.end();
}

constexpr std::uint32_t kPublishedWord = 1u << 31;

TEST(HostileRing, ImpossibleHeadersEndTheLink) {
  FrameHeader good;
  FrameHeader bad_kind = good;
  bad_kind.kind = static_cast<FrameKind>(77);
  FrameHeader no_kind = good;
  no_kind.kind = static_cast<FrameKind>(0);
  FrameHeader bad_class = good;
  bad_class.frame_class = static_cast<FrameClass>(9);
  FrameHeader bad_goodbye = good;
  bad_goodbye.kind = static_cast<FrameKind>(0xff);
  bad_goodbye.index = 12345;
  for (const FrameHeader& header : {bad_kind, no_kind, bad_class, bad_goodbye}) {
    const Status end = end_after(header, kPublishedWord | 4);
    EXPECT_EQ(end.code(), ErrorCode::kProtocol);
    EXPECT_EQ(end.rank(), 3);
  }
  EXPECT_EQ(end_after(good, kPublishedWord | (kFramePayloadMax + 1)).code(), ErrorCode::kProtocol);
  EXPECT_EQ(end_after(good, ~0u).code(), ErrorCode::kProtocol);
  EXPECT_EQ(end_after(good, kPublishedWord | 1u << 29 | 17).code(), ErrorCode::kProtocol)
      << "an inline payload above its bound";
  EXPECT_EQ(end_after(good, kPublishedWord | 1u << 30 | 64).code(), ErrorCode::kProtocol)
      << "a continuation of nothing";
  EXPECT_EQ(end_after(good, kPublishedWord | 1u << 28).code(), ErrorCode::kProtocol)
      << "a loan of nothing";
}

TEST(HostileRing, ALoanOfAnImpossibleLengthEndsTheLink) {
  for (const std::uint64_t bytes :
       {std::uint64_t{0}, kLentPayloadMax + 1, std::uint64_t{1} << 40}) {
    LendingRing ring;
    const Frame frame = make_frame(0, 1000);
    ASSERT_EQ(ring.sender.lend(frame.header, frame.payload, {MemoryPath::kHeap, bytes, 64}),
              Pushed::kPart);
    EXPECT_EQ(ring.receiver.take(ring.recorder), Took::kEnd);
    EXPECT_EQ(ring.receiver.end().code(), ErrorCode::kProtocol);
    ring.sender.withdraw();
  }
}

TEST(HostileRing, ALoanThatBecomesAMessageWhileItIsReadIsNotTakenAsOne) {
  LendingRing ring;
  const Frame frame = make_frame(0, kLentPayloadMax);
  ASSERT_EQ(ring.lend(frame), Pushed::kPart);
  EXPECT_EQ(ring.receiver.take(ring.recorder), Took::kStep);
  FrameHeader eager;
  eager.kind = FrameKind::kEager;
  eager.frame_class = FrameClass::kPointToPoint;
  std::memcpy(ring.memory.line(0), &eager, sizeof eager);
  ring.memory.write_word(ring.memory.line(0), kPublishedWord | 1u << 29 | 8);
  std::vector<std::byte> room(8);
  AwaitedMessage awaited{0, 0, room};
  EXPECT_EQ(ring.receiver.take_awaited(awaited), TakeResult::kOther);
  while (ring.receiver.take(ring.recorder) == Took::kStep) {
  }
  EXPECT_EQ(ring.recorder.count(0), 1u);
}

TEST(HostileRing, WrongContinuationEndsTheLink) {
  for (const std::uint32_t word :
       {kPublishedWord | 64u, kPublishedWord | 1u << 30, kPublishedWord | 1u << 30 | 961u, ~0u}) {
    const Memory memory(kRingBytesMin);
    RingSender sender(memory.geometry());
    RingReceiver receiver(memory.geometry(), 0);
    Recorder recorder;
    const Frame frame = make_frame(0, 2000);
    ASSERT_EQ(sender.push(frame.header, frame.payload), Pushed::kWhole);
    memory.write_word(memory.line(16), word);
    EXPECT_EQ(receiver.take(recorder), Took::kRecord);
    EXPECT_EQ(receiver.take(recorder), Took::kEnd) << word;
    EXPECT_EQ(receiver.end().code(), ErrorCode::kProtocol);
  }
}

TEST(HostileRing, ImpossibleCounterStopsTheSender) {
  for (const std::uint64_t counter : {~std::uint64_t{0}, std::uint64_t{1} << 40}) {
    const Memory memory(kRingBytesMin);
    RingSender sender(memory.geometry());
    std::memcpy(memory.bytes().data(), &counter, sizeof counter);
    Pushed pushed = Pushed::kWhole;
    for (std::uint64_t sequence = 0; pushed == Pushed::kWhole && sequence < 1000; ++sequence) {
      const Frame frame = make_frame(sequence, 4);
      pushed = sender.push(frame.header, frame.payload);
    }
    EXPECT_EQ(pushed, Pushed::kBroken);
  }
}

TEST(HostileRing, RandomMemoryNeverDoesMoreThanEndTheLink) {
  const test::SeedTrace trace;
  auto random = test::random_stream(1);
  for (int round = 0; round < 3000; ++round) {
    const Memory memory(kRingBytesMin);
    RingSender sender(memory.geometry());
    for (std::uint64_t sequence = 0; sequence < 4; ++sequence) {
      const Frame frame = make_frame(sequence, test::below(random, 1200));
      if (sender.push(frame.header, frame.payload) == Pushed::kPart) break;
    }
    // A few words, mostly in header lines, become something else.
    for (int flips = 0; flips < 6; ++flips) {
      const std::size_t line = test::below(random, 62);
      const std::size_t word = test::below(random, 2) == 0 ? 0 : test::below(random, 16);
      std::uint32_t value = static_cast<std::uint32_t>(random());
      if (test::below(random, 2) == 0) value = kPublishedWord | (value & 0x7e0fffff);
      memory.write_word(memory.line(line) + 4 * word, value);
    }
    // The recorder would rightly complain of the content; here only the bounds matter.
    class Sink final : public FrameSink {
     public:
      Placement place(Rank, const FrameHeader& header) override {
        target.assign(header.payload_bytes, std::byte{0});
        return {Placement::Kind::kInto, target.data()};
      }
      void deliver(Rank, const FrameHeader&, std::size_t, std::span<const std::byte>) override {}
      void received(Rank, const FrameHeader&) override {}
      void sent(Rank, std::uint64_t) override {}
      void closed(Rank, const Status&) override {}
      std::vector<std::byte> target{std::byte{0}};
    } sink;
    RingReceiver receiver(memory.geometry(), 0);
    for (int taken = 0; taken < 100; ++taken) {
      if (receiver.take(sink) != Took::kRecord) break;
    }
  }
}

TEST(ShmTransport, ReportsAHostileRingAsClosed) {
  const Memory out(kRingBytesMin);
  const Memory in(kRingBytesMin);
  auto made = ShmTransport::make(0, {1}, [&](Rank from, Rank) -> Result<RingMemory> {
    return from == 0 ? out.ring() : in.ring();
  });
  ASSERT_TRUE(made);
  Recorder recorder;
  (*made)->endpoint(1);
  EXPECT_FALSE((*made)->poll(recorder));
  in.write_word(in.line(0), kPublishedWord | 5);
  EXPECT_TRUE((*made)->poll(recorder));
  ASSERT_TRUE(recorder.closed_cause(1).has_value());
  EXPECT_EQ(recorder.closed_cause(1)->code(), ErrorCode::kProtocol);
  EXPECT_FALSE((*made)->poll(recorder));
}

}  // namespace
}  // namespace unisono::shm
