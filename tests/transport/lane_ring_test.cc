// The lane ring by itself: every position of the wrap, and what a hostile peer may write into it.
#include "transports/shm/lane_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "tests/support/seed.h"
#include "tests/transport/recorder.h"
#include "transports/shm/shm_transport.h"

namespace unisono::shm {
namespace {

using test::Recorder;
using Pushed = LaneSender::Pushed;
using Took = LaneReceiver::Took;

/// Zero-filled memory on a line boundary.
class Memory {
 public:
  explicit Memory(std::size_t bytes)
      : bytes_(bytes), base_(static_cast<std::byte*>(std::aligned_alloc(kLineBytes, bytes))) {
    std::memset(base_.get(), 0, bytes);
  }
  LaneMemory lane() const { return {base_.get(), bytes_}; }
  LaneGeometry geometry() const { return *LaneGeometry::of(lane()); }
  std::byte* line(std::size_t index) const {
    return base_.get() + kLaneControlBytes + index * kLineBytes;
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

void take_all(LaneReceiver& receiver, Recorder& recorder) {
  while (receiver.take(recorder) == Took::kRecord) {
  }
}

TEST(LaneRing, RefusesMemoryItCannotUse) {
  const Memory memory(2 * kLaneBytesMin);
  EXPECT_EQ(LaneGeometry::of({nullptr, kLaneBytesMin}).status().code(),
            ErrorCode::kInvalidArgument);
  EXPECT_FALSE(LaneGeometry::of({memory.lane().base, kLaneBytesMin - 1}));
  EXPECT_FALSE(LaneGeometry::of({memory.lane().base + 8, kLaneBytesMin}));
  EXPECT_FALSE(LaneGeometry::of({memory.lane().base, kLaneBytesMax + 64}));
  EXPECT_TRUE(LaneGeometry::of({memory.lane().base, kLaneBytesMin}));
}

TEST(LaneRing, CarriesEverySizeFromEveryPosition) {
  const Memory memory(kLaneBytesMin);
  LaneSender sender(memory.geometry());
  LaneReceiver receiver(memory.geometry(), 0);
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

TEST(LaneRing, KeepsAllFieldsOfSmallFrames) {
  const Memory memory(kLaneBytesMin);
  LaneSender sender(memory.geometry());
  LaneReceiver receiver(memory.geometry(), 0);
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

TEST(LaneRing, FillsUpThenGoesOn) {
  const Memory memory(kLaneBytesMin);
  LaneSender sender(memory.geometry());
  LaneReceiver receiver(memory.geometry(), 0);
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

TEST(LaneRing, StreamsAFrameLargerThanItself) {
  const Memory memory(kLaneBytesMin);
  LaneSender sender(memory.geometry());
  LaneReceiver receiver(memory.geometry(), 0);
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

TEST(LaneRing, DetachedFrameIsCompletedFromACopy) {
  const Memory memory(kLaneBytesMin);
  LaneSender sender(memory.geometry());
  LaneReceiver receiver(memory.geometry(), 0);
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

TEST(LaneRing, GoodbyeFitsAFullRing) {
  const Memory memory(kLaneBytesMin);
  LaneSender sender(memory.geometry());
  LaneReceiver receiver(memory.geometry(), 0);
  Recorder recorder;
  std::uint64_t taken = 0;
  for (Frame frame = make_frame(0, 4); sender.push(frame.header, frame.payload) == Pushed::kWhole;
       frame = make_frame(taken, 4)) {
    ++taken;
  }
  sender.leave(LaneLeft::kGoodbye);
  take_all(receiver, recorder);
  EXPECT_EQ(recorder.count(0), taken);
  EXPECT_EQ(receiver.take(recorder), Took::kEnd);
  EXPECT_TRUE(receiver.end().ok());
}

TEST(LaneRing, GoodbyeInTheMiddleOfAFrameIsNoCleanEnd) {
  for (const LaneLeft how : {LaneLeft::kGoodbye, LaneLeft::kUnfinished, LaneLeft::kAbandoned}) {
    const Memory memory(kLaneBytesMin);
    LaneSender sender(memory.geometry());
    LaneReceiver receiver(memory.geometry(), 0);
    Recorder recorder;
    const Frame frame = make_frame(0, 100000);
    ASSERT_EQ(sender.push(frame.header, frame.payload), Pushed::kPart);
    sender.leave(how);
    take_all(receiver, recorder);
    EXPECT_FALSE(receiver.end().ok());
    EXPECT_EQ(recorder.count(0), 0u);
  }
}

/// One header line as a hostile peer may write it, taken by a fresh receiver.
Status end_after(const FrameHeader& header, std::uint32_t first_word) {
  const Memory memory(kLaneBytesMin);
  std::memcpy(memory.line(0), &header, sizeof header);
  memory.write_word(memory.line(0), first_word);
  LaneReceiver receiver(memory.geometry(), 3);
  Recorder recorder;
  EXPECT_EQ(receiver.take(recorder), Took::kEnd);
  EXPECT_EQ(recorder.count(3), 0u);
  return receiver.end();
}

constexpr std::uint32_t kPublishedWord = 1u << 31;

TEST(HostileLane, ImpossibleHeadersEndTheLink) {
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
}

TEST(HostileLane, WrongContinuationEndsTheLink) {
  for (const std::uint32_t word :
       {kPublishedWord | 64u, kPublishedWord | 1u << 30, kPublishedWord | 1u << 30 | 961u, ~0u}) {
    const Memory memory(kLaneBytesMin);
    LaneSender sender(memory.geometry());
    LaneReceiver receiver(memory.geometry(), 0);
    Recorder recorder;
    const Frame frame = make_frame(0, 2000);
    ASSERT_EQ(sender.push(frame.header, frame.payload), Pushed::kWhole);
    memory.write_word(memory.line(16), word);
    EXPECT_EQ(receiver.take(recorder), Took::kRecord);
    EXPECT_EQ(receiver.take(recorder), Took::kEnd) << word;
    EXPECT_EQ(receiver.end().code(), ErrorCode::kProtocol);
  }
}

TEST(HostileLane, ImpossibleCounterStopsTheSender) {
  for (const std::uint64_t counter : {~std::uint64_t{0}, std::uint64_t{1} << 40}) {
    const Memory memory(kLaneBytesMin);
    LaneSender sender(memory.geometry());
    std::memcpy(memory.bytes().data(), &counter, sizeof counter);
    Pushed pushed = Pushed::kWhole;
    for (std::uint64_t sequence = 0; pushed == Pushed::kWhole && sequence < 1000; ++sequence) {
      const Frame frame = make_frame(sequence, 4);
      pushed = sender.push(frame.header, frame.payload);
    }
    EXPECT_EQ(pushed, Pushed::kBroken);
  }
}

TEST(HostileLane, RandomMemoryNeverDoesMoreThanEndTheLink) {
  const test::SeedTrace trace;
  auto random = test::random_stream(1);
  for (int round = 0; round < 3000; ++round) {
    const Memory memory(kLaneBytesMin);
    LaneSender sender(memory.geometry());
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
    LaneReceiver receiver(memory.geometry(), 0);
    for (int taken = 0; taken < 100; ++taken) {
      if (receiver.take(sink) != Took::kRecord) break;
    }
  }
}

TEST(ShmTransport, ReportsAHostileLaneAsClosed) {
  const Memory out(kLaneBytesMin);
  const Memory in(kLaneBytesMin);
  auto made = ShmTransport::make(0, {1}, [&](Rank from, Rank) -> Result<LaneMemory> {
    return from == 0 ? out.lane() : in.lane();
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

TEST(ShmTransport, ReportsALaneThatCannotBeOpenedAsClosed) {
  const Memory in(kLaneBytesMin);
  auto made = ShmTransport::make(0, {1}, [&](Rank from, Rank) -> Result<LaneMemory> {
    if (from == 0) return Status(ErrorCode::kOutOfResources, "no memory for the lane");
    return in.lane();
  });
  ASSERT_TRUE(made);
  Recorder recorder;
  EXPECT_EQ((*made)->endpoint(1).post_send(FrameHeader(), {}, 1), PostResult::kDone);
  EXPECT_TRUE((*made)->poll(recorder));
  ASSERT_TRUE(recorder.closed_cause(1).has_value());
  EXPECT_EQ(recorder.closed_cause(1)->code(), ErrorCode::kOutOfResources);
}

TEST(ShmTransport, TellsARankThatOnlyReceivedThatItsPeerLeft) {
  const Memory lanes[2] = {Memory(kLaneBytesMin), Memory(kLaneBytesMin)};
  const auto open = [&](Rank from, Rank) -> Result<LaneMemory> { return lanes[from].lane(); };
  auto leaver = ShmTransport::make(0, {1}, open);
  auto stayer = ShmTransport::make(1, {0}, open);
  ASSERT_TRUE(leaver && stayer);
  Recorder recorder;
  // Rank 0 closes without ever having opened its lane to rank 1.
  (*stayer)->endpoint(0);
  (*leaver)->close(Clock::now(), recorder);
  EXPECT_TRUE((*stayer)->poll(recorder));
  ASSERT_TRUE(recorder.closed_cause(0).has_value());
  EXPECT_TRUE(recorder.closed_cause(0)->ok());
}

}  // namespace
}  // namespace unisono::shm
