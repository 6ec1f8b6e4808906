// The ring by itself: every position of the wrap, lent frames, and how its ends leave.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/transport/plain_ring.h"
#include "transports/shm/shm_transport.h"

namespace unisono::shm {
namespace {

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
  const Memory memory(64 * 1024);
  RingSender sender(memory.geometry());
  RingReceiver receiver(memory.geometry(), 0);
  Recorder recorder;
  std::uint64_t sequence = 0;
  int cached = 0;
  int streamed = 0;
  std::uint32_t at = 0;
  for (int round = 0; round < 300; ++round) {
    for (const std::size_t bytes : {1024u, 2100u, 5000u, 16001u, 40001u}) {
      const Frame frame = make_frame(sequence++, bytes);
      ASSERT_EQ(sender.push(frame.header, frame.payload), Pushed::kWhole) << bytes;
      std::uint32_t word;
      std::memcpy(&word, memory.line(at), sizeof word);
      ++((word & PieceStores::kStreamed) != 0 ? streamed : cached);
      take_all(receiver, recorder);  // checks the payload
      ASSERT_EQ(recorder.count(0), sequence);
      // 40001 bytes are three pieces.
      const std::size_t piece_bytes = memory.geometry().piece_bytes(bytes);
      const std::size_t headers = (bytes + piece_bytes - 1) / piece_bytes;
      const std::size_t lines = headers + (bytes + kLineBytes - 1) / kLineBytes;
      at = memory.geometry().wrap(at + static_cast<std::uint32_t>(lines));
    }
  }
  EXPECT_GT(cached, 0);
  EXPECT_GT(streamed, 0);
  for (const auto& told : memory.geometry().times->of_size) {
    EXPECT_GT(told.trials, 0u);
    EXPECT_GT(told.cached, 0u);
    EXPECT_GT(told.streamed, 0u);
  }
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

// Every place is cold to a host that hands lines over at once.
TEST(MessageRing, StoresPastTheCachesWhereTheyAreCold) {
  TrialMemory trials{};
  trials.host.waits[kLineWait] = 1;
  const Memory memory(kRingBytesMin);
  RingMemory parts = memory.ring();
  parts.trials = &trials;
  RingSender sender(*RingGeometry::of(parts));
  RingReceiver receiver(*RingGeometry::of(parts), 0);
  Recorder recorder;  // checks payloads
  std::uint64_t sequence = 0;
  for (const std::size_t bytes : {kFramePayloadMax, kFramePayloadMax - 3, std::size_t{5}}) {
    const Frame frame = make_frame(sequence++, bytes);
    Pushed pushed = sender.push(frame.header, frame.payload);
    for (int round = 0; pushed == Pushed::kPart && round < 1000; ++round) {
      take_all(receiver, recorder);
      pushed = sender.resume();
    }
    take_all(receiver, recorder);
    EXPECT_EQ(pushed, Pushed::kWhole) << bytes;
    EXPECT_EQ(recorder.count(0), sequence);
  }
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

TEST(LentFrame, IsReadInPlace) {
  LendingRing ring;
  for (std::uint64_t sequence = 0; sequence < 100; ++sequence) {
    const Frame lent = make_frame(2 * sequence, 20'000 + 31 * sequence);
    EXPECT_FALSE(ring.receiver.is_lent_next());
    ASSERT_EQ(ring.lend(lent), Pushed::kPart);
    EXPECT_TRUE(ring.receiver.is_lent_next());
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

// Longer than what is read at once: the other end gets its turn in between.
constexpr std::size_t kSteps = 4;
constexpr std::size_t kLongLoan = kSteps * 256 * 1024 - 7;

TEST(LentFrame, ThatIsLongIsReadStepByStep) {
  for (const MemoryPath path : {MemoryPath::kHeap, MemoryPath::kPointer}) {
    LendingRing ring;
    const Frame frame = make_frame(0, kLongLoan);
    ASSERT_EQ(ring.lend(frame, path), Pushed::kPart);
    for (std::size_t step = 1; step < kSteps; ++step) {
      EXPECT_EQ(ring.receiver.take(ring.recorder), Took::kStep);
      EXPECT_TRUE(ring.receiver.reading());
      EXPECT_EQ(ring.sender.resume(), Pushed::kPart);
    }
    EXPECT_EQ(ring.receiver.take(ring.recorder), Took::kRecord);
    EXPECT_EQ(ring.recorder.count(0), 1u);
    EXPECT_EQ(ring.sender.resume(), Pushed::kWhole);
  }
}

TEST(LentFrame, TakenBackBetweenTwoStepsComesFromACopy) {
  for (const MemoryPath path : {MemoryPath::kHeap, MemoryPath::kPointer}) {
    LendingRing ring;
    Frame frame = make_frame(0, kLongLoan);
    ASSERT_EQ(ring.lend(frame, path), Pushed::kPart);
    EXPECT_EQ(ring.receiver.take(ring.recorder), Took::kStep);
    ring.sender.detach();
    std::fill(frame.payload.begin(), frame.payload.end(), std::byte{0x5a});
    ring.loans.meanwhile = [] { ADD_FAILURE() << "it was read although it is not lent any more"; };
    EXPECT_TRUE(ring.run());
    EXPECT_EQ(ring.recorder.count(0), 1u);
  }
}

/// Memory of a receiver that may want it back.
class Room final : public FrameSink {
 public:
  Placement place(Rank, const FrameHeader&) override {
    return {Placement::Kind::kInto, memory.data()};
  }
  void deliver(Rank, const FrameHeader&, std::size_t, std::span<const std::byte>) override {}
  void received(Rank, const FrameHeader&) override { ++frames; }
  void sent(Rank, std::uint64_t) override {}
  void closed(Rank, const Status&) override {}

  std::vector<std::byte> memory = std::vector<std::byte>(kLongLoan);
  int frames = 0;
};

TEST(LentFrame, AbandonedBetweenTwoStepsIsNotReadAnyMore) {
  LendingRing ring;
  const Frame frame = make_frame(0, kLongLoan);
  Room room;
  ASSERT_EQ(ring.lend(frame), Pushed::kPart);
  EXPECT_EQ(ring.receiver.take(room), Took::kStep);
  ring.receiver.abandon(room.memory.data(), room.memory.size());
  ring.loans.meanwhile = [] { ADD_FAILURE() << "it was read"; };
  EXPECT_EQ(ring.receiver.take(room), Took::kRecord);
  EXPECT_EQ(room.frames, 1);
  EXPECT_EQ(ring.sender.resume(), Pushed::kWhole);
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

// The same between the steps of a long one.
TEST(LentFrame, SurvivesALenderThatChangesItsMindBetweenSteps) {
  LendingRing ring;
  constexpr std::uint64_t kFrames = 40;
  std::thread lender([&] {
    for (std::uint64_t sequence = 0; sequence < kFrames; ++sequence) {
      Frame frame = make_frame(sequence, kLongLoan);
      while (ring.lend(frame, MemoryPath::kPointer) == Pushed::kNothing) std::this_thread::yield();
      for (std::uint64_t turn = 0; turn < sequence % 8; ++turn) {
        std::this_thread::yield();
        ring.sender.resume();
      }
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

// Rank 0 of a host with so many others that it does not look at all of them each time.
class ManyPeers {
 public:
  static constexpr Rank kPeers = 3 * kLinksPerTurn + 1;

  ManyPeers() {
    std::vector<Rank> peers;
    for (Rank peer = 1; peer <= kPeers; ++peer) peers.push_back(peer);
    for (Rank rank = 0; rank <= kPeers; ++rank)
      rings_.push_back(std::make_unique<Memory>(kRingBytesMin));
    auto made = ShmTransport::make(
        0, std::move(peers),
        [this](Rank from, Rank) -> Result<RingMemory> { return rings_[from]->ring(); });
    transport_ = std::move(*made);
    for (Rank peer = 1; peer <= kPeers; ++peer) {
      senders_.push_back(std::make_unique<RingSender>(*RingGeometry::of(rings_[peer]->ring())));
    }
  }
  void send(Rank peer, std::uint64_t sequence) {
    const Frame frame = make_frame(sequence, 0);
    ASSERT_EQ(senders_[peer - 1]->push(frame.header, frame.payload), Pushed::kWhole);
  }

  bool poll() { return transport_->poll(recorder); }

  Recorder recorder;

 private:
  std::vector<std::unique_ptr<Memory>> rings_;
  std::vector<std::unique_ptr<RingSender>> senders_;
  std::unique_ptr<Transport> transport_;
};

TEST(ShmTransport, HearsAnyOfManyPeersInOnePollWhereNothingElseMoves) {
  ManyPeers host;
  std::vector<std::uint64_t> sent(ManyPeers::kPeers + 1);
  for (Rank step = 0; step < 2 * ManyPeers::kPeers; ++step) {
    const Rank peer = 1 + step * 7 % ManyPeers::kPeers;
    host.send(peer, sent[peer]++);
    EXPECT_TRUE(host.poll());
    ASSERT_EQ(host.recorder.count(peer), sent[peer]) << peer;
    EXPECT_FALSE(host.poll()) << "nothing is left";
  }
}

TEST(ShmTransport, HearsEachOfManyPeersBesideSomeThatAlwaysSend) {
  ManyPeers host;
  std::uint64_t busy = 0, sent = 0;
  for (Rank silent = 3; silent <= ManyPeers::kPeers; ++silent) {
    host.send(silent, 0);
    int polls = 0;
    for (; host.recorder.count(silent) == 0 && polls < 100; ++polls) {
      for (const Rank peer : {1, 2}) host.send(peer, sent);
      ++sent;
      host.poll();
      busy += host.recorder.count(1) == sent && host.recorder.count(2) == sent ? 1 : 0;
    }
    EXPECT_LE(polls, 4) << silent;
  }
  EXPECT_GE(busy + 8, sent) << "and these, once they are known, each time";
}

}  // namespace
}  // namespace unisono::shm
