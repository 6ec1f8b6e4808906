// The ring by itself: every position of the wrap, and what a hostile peer may write into it.
#include "transports/shm/message_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>

#include "tests/support/seed.h"
#include "tests/transport/recorder.h"
#include "transports/shm/shm_transport.h"

namespace unisono::shm {
namespace {

using test::Recorder;
using Pushed = RingSender::Pushed;
using Took = RingReceiver::Took;

/// Zero-filled memory on a line boundary.
class Memory {
 public:
  explicit Memory(std::size_t bytes)
      : bytes_(bytes), base_(static_cast<std::byte*>(std::aligned_alloc(kLineBytes, bytes))) {
    std::memset(base_.get(), 0, bytes);
  }
  RingMemory ring() const { return {base_.get(), bytes_}; }
  RingGeometry geometry() const { return *RingGeometry::of(ring()); }
  std::byte* line(std::size_t index) const {
    return base_.get() + kRingControlBytes + index * kLineBytes;
  }
  void write_word(std::byte* at, std::uint32_t word) const { std::memcpy(at, &word, sizeof word); }
  std::span<std::byte> bytes() const { return {base_.get(), bytes_}; }

 private:
  struct Free {
    void operator()(std::byte* at) const { std::free(at); }
  };
  std::size_t bytes_;
  std::unique_ptr<std::byte, Free> base_;
};

struct Frame {
  FrameHeader header;
  std::vector<std::byte> payload;
};

Frame make_frame(std::uint64_t sequence, std::size_t bytes) {
  Frame frame;
  frame.header.payload_bytes = static_cast<std::uint32_t>(bytes);
  frame.header.sequence = sequence;
  frame.header.total_bytes = bytes;
  frame.payload.resize(bytes);
  test::fill_payload(frame.payload, 0, sequence);
  return frame;
}

void take_all(RingReceiver& receiver, Recorder& recorder) {
  while (receiver.take(recorder) == Took::kRecord) {
  }
}

TEST(MessageRing, RefusesMemoryItCannotUse) {
  const Memory memory(2 * kRingBytesMin);
  EXPECT_EQ(RingGeometry::of({nullptr, kRingBytesMin}).status().code(),
            ErrorCode::kInvalidArgument);
  EXPECT_FALSE(RingGeometry::of({memory.ring().base, kRingBytesMin - 1}));
  EXPECT_FALSE(RingGeometry::of({memory.ring().base + 8, kRingBytesMin}));
  EXPECT_FALSE(RingGeometry::of({memory.ring().base, kRingBytesMax + 64}));
  EXPECT_TRUE(RingGeometry::of({memory.ring().base, kRingBytesMin}));
}

TEST(MessageRing, CarriesEverySizeFromEveryPosition) {
  const Memory memory(kRingBytesMin);
  RingSender sender(memory.geometry());
  RingReceiver receiver(memory.geometry(), 0);
  Recorder recorder;
  std::uint64_t sequence = 0;
  // The ring has 62 lines and a record takes 1 to 16: all offsets of the wrap are met.
  for (int round = 0; round < 70; ++round) {
    for (std::size_t bytes = 0; bytes <= 960; bytes += 31) {
      const Frame frame = make_frame(sequence++, bytes);
      ASSERT_EQ(sender.push(frame.header, frame.payload), Pushed::kWhole) << bytes;
      take_all(receiver, recorder);
      ASSERT_EQ(recorder.count(0), sequence);
    }
  }
}

TEST(MessageRing, CarriesPiecesThatAreWrittenPastTheCaches) {
  const Memory memory(256 * 1024);
  RingSender sender(memory.geometry());
  RingReceiver receiver(memory.geometry(), 0);
  Recorder recorder;
  std::uint64_t sequence = 0;
  int cached = 0;
  int streamed = 0;
  std::uint32_t at = 0;
  for (int round = 0; round < 60; ++round) {
    for (const std::size_t bytes : {1024u, 2100u, 5000u, 16001u, 40001u}) {
      const Frame frame = make_frame(sequence++, bytes);
      ASSERT_EQ(sender.push(frame.header, frame.payload), Pushed::kWhole) << bytes;
      std::uint32_t word;
      std::memcpy(&word, memory.line(at), sizeof word);
      ++((word & PieceStores::kStreamed) != 0 ? streamed : cached);
      take_all(receiver, recorder);  // checks the payload
      ASSERT_EQ(recorder.count(0), sequence);
      // 40001 bytes are three pieces.
      const std::size_t headers = (bytes + kPieceBytesMax - 1) / kPieceBytesMax;
      const std::size_t lines = headers + (bytes + kLineBytes - 1) / kLineBytes;
      at = memory.geometry().wrap(at + static_cast<std::uint32_t>(lines));
    }
  }
  EXPECT_GT(cached, 0);
  EXPECT_GT(streamed, 0);
}

TEST(MessageRing, KeepsAllFieldsOfSmallFrames) {
  const Memory memory(kRingBytesMin);
  RingSender sender(memory.geometry());
  RingReceiver receiver(memory.geometry(), 0);
  Recorder recorder;
  // What looks like an inline frame and is not: offset or total size say more than the length.
  std::vector<FrameHeader> sent;
  for (const std::uint64_t offset : {0ull, 1ull, ~0ull}) {
    for (const std::uint64_t total : {0ull, 4ull, ~0ull}) {
      Frame frame = make_frame(sent.size(), 4);
      frame.header.offset = offset;
      frame.header.total_bytes = total;
      ASSERT_EQ(sender.push(frame.header, frame.payload), Pushed::kWhole);
      sent.push_back(frame.header);
      take_all(receiver, recorder);
    }
  }
  ASSERT_EQ(recorder.count(0), sent.size());
  for (std::size_t at = 0; at < sent.size(); ++at) {
    EXPECT_EQ(std::memcmp(&recorder.frames(0)[at], &sent[at], sizeof(FrameHeader)), 0) << at;
  }
}

TEST(MessageRing, FillsUpThenGoesOn) {
  const Memory memory(kRingBytesMin);
  RingSender sender(memory.geometry());
  RingReceiver receiver(memory.geometry(), 0);
  Recorder recorder;
  std::uint64_t sequence = 0;
  for (int round = 0; round < 50; ++round) {
    const std::uint64_t before = sequence;
    for (;;) {
      const Frame frame = make_frame(sequence, 4);
      if (sender.push(frame.header, frame.payload) == Pushed::kNothing) break;
      ++sequence;
    }
    EXPECT_GT(sequence, before + 40);
    take_all(receiver, recorder);
    EXPECT_EQ(recorder.count(0), sequence);
  }
}

TEST(MessageRing, StreamsAFrameLargerThanItself) {
  const Memory memory(kRingBytesMin);
  RingSender sender(memory.geometry());
  RingReceiver receiver(memory.geometry(), 0);
  Recorder recorder;
  recorder.choose_placement = [](const FrameHeader&) { return Placement::Kind::kDeliver; };
  const Frame frame = make_frame(0, kFramePayloadMax);
  Pushed pushed = sender.push(frame.header, frame.payload);
  EXPECT_EQ(pushed, Pushed::kPart);
  int rounds = 0;
  for (; pushed == Pushed::kPart && rounds < 1000; ++rounds) {
    take_all(receiver, recorder);
    pushed = sender.resume();
  }
  take_all(receiver, recorder);
  EXPECT_EQ(pushed, Pushed::kWhole);
  EXPECT_GT(rounds, 60);
  EXPECT_EQ(recorder.count(0), 1u);
}

TEST(MessageRing, DetachedFrameIsCompletedFromACopy) {
  const Memory memory(kRingBytesMin);
  RingSender sender(memory.geometry());
  RingReceiver receiver(memory.geometry(), 0);
  Recorder recorder;
  {
    Frame frame = make_frame(0, 100000);
    ASSERT_EQ(sender.push(frame.header, frame.payload), Pushed::kPart);
    sender.detach();
    std::fill(frame.payload.begin(), frame.payload.end(), std::byte{0});
  }
  for (int round = 0; round < 1000 && sender.writing(); ++round) {
    take_all(receiver, recorder);
    sender.resume();
  }
  take_all(receiver, recorder);
  EXPECT_EQ(recorder.count(0), 1u);
}

TEST(MessageRing, GoodbyeFitsAFullRing) {
  const Memory memory(kRingBytesMin);
  RingSender sender(memory.geometry());
  RingReceiver receiver(memory.geometry(), 0);
  Recorder recorder;
  std::uint64_t taken = 0;
  for (Frame frame = make_frame(0, 4); sender.push(frame.header, frame.payload) == Pushed::kWhole;
       frame = make_frame(taken, 4)) {
    ++taken;
  }
  sender.leave(RingLeft::kGoodbye);
  take_all(receiver, recorder);
  EXPECT_EQ(recorder.count(0), taken);
  EXPECT_EQ(receiver.take(recorder), Took::kEnd);
  EXPECT_TRUE(receiver.end().ok());
}

TEST(MessageRing, GoodbyeInTheMiddleOfAFrameIsNoCleanEnd) {
  for (const RingLeft how : {RingLeft::kGoodbye, RingLeft::kUnfinished, RingLeft::kAbandoned}) {
    const Memory memory(kRingBytesMin);
    RingSender sender(memory.geometry());
    RingReceiver receiver(memory.geometry(), 0);
    Recorder recorder;
    const Frame frame = make_frame(0, 100000);
    ASSERT_EQ(sender.push(frame.header, frame.payload), Pushed::kPart);
    sender.leave(how);
    take_all(receiver, recorder);
    EXPECT_FALSE(receiver.end().ok());
    EXPECT_EQ(recorder.count(0), 0u);
  }
}

// Reads what is lent in place, after `meanwhile`.
class PlainLoans final : public Loans {
 public:
  PlainLoans() : Loans(0) {}
  MemoryHandle lend(Rank, const FrameHeader&, std::span<const std::byte>) const override {
    return {};
  }
  Status collect(Rank, const MemoryHandle& loan, std::span<std::byte> out) const override {
    std::memcpy(out.data(), reinterpret_cast<const void*>(loan.address), out.size());
    if (meanwhile) meanwhile();
    return failure;
  }
  std::function<void()> meanwhile;
  Status failure;
};

// A sender that lends, a receiver that reads in place, and who sees what arrives.
struct LendingRing {
  Memory memory{kRingBytesMin};
  RingSender sender{memory.geometry()};
  PlainLoans loans;
  RingReceiver receiver{memory.geometry(), 0, &loans};
  Recorder recorder;

  Pushed lend(const Frame& frame, MemoryPath path = MemoryPath::kHeap) {
    return sender.lend(
        frame.header, frame.payload,
        {path, frame.payload.size(), reinterpret_cast<std::uint64_t>(frame.payload.data())});
  }
  /// Both ends go on. Whether the frame has left the sender soon.
  bool run() {
    for (int turn = 0; turn < 1000; ++turn) {
      take_all(receiver, recorder);
      if (sender.writing() && sender.resume() == Pushed::kBroken) return false;
      if (sender.writing()) continue;
      take_all(receiver, recorder);
      return true;
    }
    return false;
  }
};

TEST(LentFrame, IsReadInPlace) {
  LendingRing ring;
  for (std::uint64_t sequence = 0; sequence < 100; ++sequence) {
    const Frame lent = make_frame(2 * sequence, 20'000 + 31 * sequence);
    ASSERT_EQ(ring.lend(lent), Pushed::kPart);
    EXPECT_TRUE(ring.sender.writing());
    EXPECT_EQ(ring.sender.resume(), Pushed::kPart) << "nobody has read it";
    EXPECT_EQ(ring.receiver.take(ring.recorder), Took::kRecord);
    EXPECT_EQ(ring.recorder.count(0), 2 * sequence + 1) << "one record, however long";
    EXPECT_EQ(ring.sender.resume(), Pushed::kWhole);
    EXPECT_FALSE(ring.sender.writing());
    // Frames through the ring follow, so that all positions of the wrap are met.
    const Frame copied = make_frame(2 * sequence + 1, 31 * (sequence % 30));
    ASSERT_EQ(ring.sender.push(copied.header, copied.payload), Pushed::kWhole);
    take_all(ring.receiver, ring.recorder);
  }
}

TEST(LentFrame, OfNobodyWhoWantsItIsNotRead) {
  LendingRing ring;
  ring.recorder.choose_placement = [](const FrameHeader&) { return Placement::Kind::kDiscard; };
  ring.loans.meanwhile = [] { ADD_FAILURE() << "it was read"; };
  ASSERT_EQ(ring.lend(make_frame(0, 20'000)), Pushed::kPart);
  EXPECT_EQ(ring.receiver.take(ring.recorder), Took::kRecord);
  EXPECT_EQ(ring.sender.resume(), Pushed::kWhole);
}

TEST(LentFrame, ThatCannotBeReadInPlaceComesThroughTheRing) {
  for (const bool delivers : {true, false}) {
    LendingRing ring;
    if (delivers) {
      ring.recorder.choose_placement = [](const FrameHeader&) { return Placement::Kind::kDeliver; };
    }
    ring.loans.failure = Status(ErrorCode::kSystem, "not readable");
    for (std::uint64_t sequence = 0; sequence < 20; ++sequence) {
      const Frame frame = make_frame(sequence, 20'000 + 77 * sequence);
      ASSERT_EQ(ring.lend(frame), Pushed::kPart);
      EXPECT_TRUE(ring.run());
      ASSERT_EQ(ring.recorder.count(0), sequence + 1);
      EXPECT_FALSE(ring.sender.may_lend()) << "it would be refused again";
    }
  }
}

TEST(LentFrame, TakenBackBeforeItIsReadComesFromACopy) {
  LendingRing ring;
  Frame frame = make_frame(0, 20'000);
  ASSERT_EQ(ring.lend(frame), Pushed::kPart);
  ring.sender.detach();
  std::fill(frame.payload.begin(), frame.payload.end(), std::byte{0x5a});
  ring.loans.meanwhile = [] { ADD_FAILURE() << "it was read although it is not lent any more"; };
  EXPECT_TRUE(ring.run());
  EXPECT_EQ(ring.recorder.count(0), 1u);
}

TEST(LentFrame, TakenBackWhileItIsReadComesAgainFromACopy) {
  LendingRing ring;
  Frame frame = make_frame(0, 20'000);
  ASSERT_EQ(ring.lend(frame), Pushed::kPart);
  ring.loans.meanwhile = [&] { ring.sender.detach(); };
  EXPECT_EQ(ring.receiver.take(ring.recorder), Took::kRecord);
  EXPECT_EQ(ring.recorder.count(0), 0u) << "the copy is not to be trusted";
  EXPECT_TRUE(ring.receiver.reading());
  std::fill(frame.payload.begin(), frame.payload.end(), std::byte{0x5a});
  EXPECT_TRUE(ring.run());
  EXPECT_EQ(ring.recorder.count(0), 1u);
}

TEST(LentFrame, TakenBackAfterItWasReadIsDone) {
  LendingRing ring;
  const Frame frame = make_frame(0, 20'000);
  ASSERT_EQ(ring.lend(frame), Pushed::kPart);
  EXPECT_EQ(ring.receiver.take(ring.recorder), Took::kRecord);
  ring.sender.detach();
  EXPECT_FALSE(ring.sender.writing());
  EXPECT_EQ(ring.receiver.take(ring.recorder), Took::kNothing);
  EXPECT_EQ(ring.recorder.count(0), 1u);
}

// Memory of the same process may be unmapped as soon as it is given back.
TEST(LentFrame, IsNotGivenBackWhileAThreadReads) {
  LendingRing ring;
  const Frame frame = make_frame(0, 20'000);
  ASSERT_EQ(ring.lend(frame, MemoryPath::kPointer), Pushed::kPart);
  std::atomic<bool> has_read{false};
  std::thread owner;
  ring.loans.meanwhile = [&] {
    std::atomic<bool> begins{false};
    owner = std::thread([&] {
      begins = true;
      ring.sender.withdraw();
      EXPECT_TRUE(has_read);
    });
    while (!begins) std::this_thread::yield();
    for (int turn = 0; turn < 1000; ++turn) std::this_thread::yield();
    has_read = true;
  };
  EXPECT_EQ(ring.receiver.take(ring.recorder), Took::kRecord);
  owner.join();
  EXPECT_FALSE(ring.sender.writing());
  EXPECT_EQ(ring.recorder.count(0), 1u);
}

// Threads that lend, take back and spoil as fast as another reads. The recorder compares.
TEST(LentFrame, SurvivesALenderThatChangesItsMind) {
  LendingRing ring;
  constexpr std::uint64_t kFrames = 3000;
  std::thread lender([&] {
    for (std::uint64_t sequence = 0; sequence < kFrames; ++sequence) {
      Frame frame = make_frame(sequence, 3000);
      while (ring.lend(frame, MemoryPath::kPointer) == Pushed::kNothing) std::this_thread::yield();
      for (std::uint64_t turn = 0; turn < sequence % 40; ++turn) ring.sender.resume();
      if (ring.sender.writing()) ring.sender.detach();
      std::fill(frame.payload.begin(), frame.payload.end(), std::byte{0x5a});
      while (ring.sender.writing() && ring.sender.resume() == Pushed::kPart) {
        std::this_thread::yield();
      }
    }
  });
  while (ring.recorder.count(0) < kFrames) {
    if (ring.receiver.take(ring.recorder) == Took::kNothing) std::this_thread::yield();
  }
  lender.join();
}

TEST(LentFrame, OfARankThatLeavesEndsTheRing) {
  LendingRing ring;
  const Frame frame = make_frame(0, 20'000);
  ASSERT_EQ(ring.lend(frame), Pushed::kPart);
  ring.sender.withdraw();
  ring.sender.leave(RingLeft::kUnfinished);
  take_all(ring.receiver, ring.recorder);
  EXPECT_EQ(ring.recorder.count(0), 0u);
  EXPECT_EQ(ring.receiver.end().code(), ErrorCode::kRankLeft);
}

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
      if (test::below(random, 2) == 0) value = kPublishedWord | (value & 0x700fffff);
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

TEST(ShmTransport, ReportsARingThatCannotBeOpenedAsClosed) {
  const Memory in(kRingBytesMin);
  auto made = ShmTransport::make(0, {1}, [&](Rank from, Rank) -> Result<RingMemory> {
    if (from == 0) return Status(ErrorCode::kOutOfResources, "no memory for the ring");
    return in.ring();
  });
  ASSERT_TRUE(made);
  Recorder recorder;
  EXPECT_EQ((*made)->endpoint(1).post_send(FrameHeader(), {}, 1), PostResult::kDone);
  EXPECT_TRUE((*made)->poll(recorder));
  ASSERT_TRUE(recorder.closed_cause(1).has_value());
  EXPECT_EQ(recorder.closed_cause(1)->code(), ErrorCode::kOutOfResources);
}

TEST(ShmTransport, TellsARankThatOnlyReceivedThatItsPeerLeft) {
  const Memory rings[2] = {Memory(kRingBytesMin), Memory(kRingBytesMin)};
  const auto open = [&](Rank from, Rank) -> Result<RingMemory> { return rings[from].ring(); };
  auto leaver = ShmTransport::make(0, {1}, open);
  auto stayer = ShmTransport::make(1, {0}, open);
  ASSERT_TRUE(leaver && stayer);
  Recorder recorder;
  // Rank 0 closes without ever having opened its ring to rank 1.
  (*stayer)->endpoint(0);
  (*leaver)->close(Clock::now(), recorder);
  EXPECT_TRUE((*stayer)->poll(recorder));
  ASSERT_TRUE(recorder.closed_cause(0).has_value());
  EXPECT_TRUE(recorder.closed_cause(0)->ok());
}

}  // namespace
}  // namespace unisono::shm
