// The two ends of a ring and the records in it, one claim at a time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "tests/verbs/ring_pair.h"

namespace unisono::verbs::test {
namespace {

TEST(Immediate, RoundTripsEveryKind) {
  for (const auto kind :
       {ImmediateKind::kWritten, ImmediateKind::kConsumed, ImmediateKind::kRead}) {
    for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{1}, kImmediateMask,
                                      kImmediateMask + 1, std::uint64_t{123456789012}}) {
      const std::optional<Immediate> got = decode_immediate(encode(kind, count));
      ASSERT_TRUE(got.has_value());
      EXPECT_EQ(got->kind, kind);
      EXPECT_EQ(got->value, count & kImmediateMask);
    }
  }
}

TEST(Immediate, FourthKindDoesNotExist) {
  EXPECT_FALSE(decode_immediate(0xc0000000u).has_value());
  EXPECT_FALSE(decode_immediate(0xffffffffu).has_value());
  EXPECT_TRUE(decode_immediate(0xbfffffffu).has_value());
}

TEST(Immediate, ExtendsToTheNextCountThatEndsLikeIt) {
  EXPECT_EQ(extend(0, 0), 0u);
  EXPECT_EQ(extend(5, 5), 5u);
  EXPECT_EQ(extend(5, 6), 6u);
  EXPECT_EQ(extend(5, 4), kImmediateMask + 1 + 4);
  EXPECT_EQ(extend(kImmediateMask, 0), kImmediateMask + 1);
  EXPECT_EQ(extend(3 * (kImmediateMask + 1) - 1, 7), 3 * (kImmediateMask + 1) + 7);
  std::mt19937_64 random(1);
  for (int i = 0; i < 10000; ++i) {
    const std::uint64_t known = random() >> (2 + random() % 40);
    const std::uint64_t ahead = random() & kImmediateMask;
    const auto value = static_cast<std::uint32_t>((known + ahead) & kImmediateMask);
    ASSERT_EQ(extend(known, value), known + ahead);
  }
}

TEST(Record, SizeFollowsFromTheHeader) {
  FrameHeader header = frame_of(0);
  header.reserved = static_cast<std::uint16_t>(RecordKind::kWhole);
  EXPECT_EQ(record_bytes(header), 64u);
  header.payload_bytes = 1;
  EXPECT_EQ(record_bytes(header), 128u);
  header.payload_bytes = 64;
  EXPECT_EQ(record_bytes(header), 128u);
  header.payload_bytes = kFramePayloadMax;
  EXPECT_EQ(record_bytes(header), 64u + kFramePayloadMax);
  header.reserved = static_cast<std::uint16_t>(RecordKind::kLent);
  EXPECT_EQ(record_bytes(header), 128u);
  header.reserved = static_cast<std::uint16_t>(RecordKind::kSkip);
  EXPECT_EQ(record_bytes(header), 64u + kFramePayloadMax);
}

TEST(Record, SizeOfWhatNobodyWritesIsNone) {
  const auto refused = [](RecordKind kind, auto change) {
    FrameHeader header = frame_of(64);
    header.reserved = static_cast<std::uint16_t>(kind);
    EXPECT_TRUE(record_bytes(header).has_value());
    change(header);
    return !record_bytes(header).has_value();
  };
  for (const auto kind : {RecordKind::kWhole, RecordKind::kLent, RecordKind::kSkip}) {
    EXPECT_TRUE(refused(kind, [](FrameHeader& h) { h.payload_bytes = kFramePayloadMax + 1; }));
    EXPECT_TRUE(refused(kind, [](FrameHeader& h) { h.payload_bytes = kFramePayloadMax + 64; }));
    EXPECT_TRUE(refused(kind, [](FrameHeader& h) { h.payload_bytes = 0xffffffff; }));
    EXPECT_TRUE(refused(kind, [](FrameHeader& h) { h.reserved = 0; }));
    EXPECT_TRUE(refused(kind, [](FrameHeader& h) { h.reserved = 4; }));
    EXPECT_TRUE(refused(kind, [](FrameHeader& h) { h.reserved = 0x0101; }));
  }
  for (const auto kind : {RecordKind::kWhole, RecordKind::kLent}) {
    EXPECT_TRUE(refused(kind, [](FrameHeader& h) { h.kind = static_cast<FrameKind>(0); }));
    EXPECT_TRUE(refused(kind, [](FrameHeader& h) { h.kind = FrameKind::kTransport; }));
    EXPECT_TRUE(refused(kind, [](FrameHeader& h) { h.frame_class = static_cast<FrameClass>(0); }));
    EXPECT_TRUE(refused(kind, [](FrameHeader& h) { h.frame_class = static_cast<FrameClass>(3); }));
  }
  EXPECT_TRUE(refused(RecordKind::kLent, [](FrameHeader& h) { h.payload_bytes = 0; }));
  EXPECT_TRUE(refused(RecordKind::kSkip, [](FrameHeader& h) { h.payload_bytes = 63; }));
}

TEST(Rings, WholeFrameArrivesAsPosted) {
  RingPair pair(4096);
  const std::vector<std::byte> payload = bytes_of(100, 1);
  ASSERT_TRUE(pair.sender.append_whole(frame_of(100, 5), payload));
  pair.write_all();
  ReceiveRing::Record record;
  ASSERT_TRUE(pair.peek(&record));
  EXPECT_EQ(record.kind, RecordKind::kWhole);
  EXPECT_TRUE(equal(record.header, frame_of(100, 5)));
  EXPECT_TRUE(
      std::equal(payload.begin(), payload.end(), record.payload.begin(), record.payload.end()));
  ASSERT_TRUE(pair.peek(&record)) << "peek() alone consumes nothing";
  EXPECT_EQ(pair.receiver.consumed(), 0u);
  pair.receiver.pop();
  EXPECT_EQ(pair.receiver.consumed(), 192u);
  EXPECT_FALSE(pair.peek(&record));
}

TEST(Rings, FrameWithoutPayloadIsOneLine) {
  RingPair pair(4096);
  ASSERT_TRUE(pair.sender.append_whole(frame_of(0), {}));
  EXPECT_EQ(pair.sender.appended(), kLine);
  pair.write_all();
  ReceiveRing::Record record;
  ASSERT_TRUE(pair.peek(&record));
  EXPECT_TRUE(record.payload.empty());
  pair.receiver.pop();
  EXPECT_EQ(pair.receiver.consumed(), kLine);
}

TEST(Rings, LentFrameArrivesWithItsSourceAndNoPayload) {
  RingPair pair(4096);
  ASSERT_TRUE(pair.sender.append_whole(frame_of(0), {}));
  EXPECT_EQ(pair.sender.append_lent(frame_of(200000, 3), source_of(8)), kLine);
  pair.write_all();
  ReceiveRing::Record record;
  ASSERT_TRUE(pair.peek(&record));
  pair.receiver.pop();
  ASSERT_TRUE(pair.peek(&record));
  EXPECT_EQ(record.kind, RecordKind::kLent);
  EXPECT_TRUE(equal(record.header, frame_of(200000, 3)));
  EXPECT_TRUE(equal(record.source, source_of(8)));
  EXPECT_TRUE(record.payload.empty());
}

TEST(Rings, RecordIsOnlySeenOnceItIsWrittenToItsEnd) {
  RingPair pair(4096);
  ASSERT_TRUE(pair.sender.append_whole(frame_of(200), bytes_of(200, 0)));
  ReceiveRing::Record record;
  for (int line = 0; line < 4; ++line) {
    ASSERT_TRUE(pair.write(kLine));
    EXPECT_FALSE(pair.peek(&record)) << line;
  }
  ASSERT_TRUE(pair.write(kLine));
  EXPECT_TRUE(pair.peek(&record));
  EXPECT_FALSE(pair.write(kLine));
}

TEST(Rings, MemoryBeyondWhatIsWrittenDecidesNothing) {
  std::mt19937 random(3);
  for (int junk = 0; junk < 200; ++junk) {
    RingPair pair(4096);
    for (std::byte& byte : pair.there.span()) byte = static_cast<std::byte>(random());
    ReceiveRing::Record record;
    EXPECT_FALSE(pair.peek(&record));
    ASSERT_TRUE(pair.sender.append_whole(frame_of(0, 1), {}));
    ASSERT_TRUE(pair.sender.append_whole(frame_of(500, 2), bytes_of(500, 0)));
    ASSERT_TRUE(pair.write(kLine + 128));
    ASSERT_TRUE(pair.peek(&record));
    EXPECT_EQ(record.header.sequence, 1u);
    pair.receiver.pop();
    EXPECT_FALSE(pair.peek(&record));
    EXPECT_EQ(pair.receiver.consumed(), kLine);
  }
}

TEST(SendRing, HoldsAsManyLinesAsItHasAndNoMore) {
  RingPair pair(4096);
  for (int line = 0; line < 64; ++line) {
    ASSERT_TRUE(pair.sender.append_whole(frame_of(0), {})) << line;
  }
  EXPECT_FALSE(pair.sender.append_whole(frame_of(0), {}));
  EXPECT_FALSE(pair.sender.append_lent(frame_of(1), source_of(0)).has_value());
  EXPECT_EQ(pair.sender.appended(), 4096u);
  pair.write_all();
  EXPECT_FALSE(pair.sender.append_whole(frame_of(0), {})) << "written is not consumed";
  ASSERT_TRUE(pair.sender.consumed(kLine));
  EXPECT_TRUE(pair.sender.append_whole(frame_of(0), {}));
  EXPECT_FALSE(pair.sender.append_whole(frame_of(0), {}));
}

TEST(SendRing, FailedAppendChangesNothing) {
  RingPair pair(4096);
  for (int line = 0; line < 62; ++line) {
    ASSERT_TRUE(pair.sender.append_whole(frame_of(0), {}));
  }
  pair.write_all();
  // Two lines are left before the end: a record of three needs a skip and consumed lines behind it.
  const std::vector<std::byte> before(pair.here.span().begin(), pair.here.span().end());
  ASSERT_TRUE(pair.sender.consumed(2 * kLine));
  EXPECT_FALSE(pair.sender.append_whole(frame_of(128), bytes_of(128, 1)));
  EXPECT_EQ(pair.sender.appended(), 62 * kLine);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), pair.here.span().begin()));
  ASSERT_TRUE(pair.sender.consumed(3 * kLine));
  EXPECT_TRUE(pair.sender.append_whole(frame_of(128), bytes_of(128, 1)));
  EXPECT_EQ(pair.sender.appended(), (64 + 3) * kLine);
}

TEST(SendRing, LargestRecordFitsAnEmptyRingWhereverItStandsAndWhateverIsUntold) {
  for (const std::size_t ring_bytes : {std::size_t{4096}, 4096 + kLine, 80 * kLine}) {
    std::size_t payload = 0;
    while (SendRing::could_hold(ring_bytes, whole_bytes(payload + kLine))) payload += kLine;
    const std::size_t lines = ring_bytes / kLine;
    EXPECT_GE(whole_bytes(payload), lines / 3 * kLine);
    for (std::size_t ahead = 0; ahead < lines; ++ahead) {
      RingPair pair(ring_bytes);
      ReceiveRing::Record record;
      for (std::size_t line = 0; line < ahead; ++line) {
        ASSERT_TRUE(pair.sender.append_whole(frame_of(0), {}));
      }
      pair.write_all();
      for (std::size_t line = 0; line < ahead; ++line) {
        ASSERT_TRUE(pair.peek(&record));
        pair.receiver.pop();
      }
      const std::size_t untold = std::min(ahead, (untold_bytes_max(ring_bytes) - 1) / kLine);
      ASSERT_TRUE(pair.sender.consumed(pair.receiver.consumed() - untold * kLine));
      ASSERT_TRUE(pair.sender.append_whole(frame_of(payload, 4), bytes_of(payload, 4))) << ahead;
      pair.write_all();
      ASSERT_TRUE(pair.peek(&record));
      EXPECT_TRUE(equal(record.header, frame_of(payload, 4)));
    }
  }
}

TEST(SendRing, PeerCannotHaveConsumedWhatWasNotPosted) {
  RingPair pair(4096);
  for (int line = 0; line < 4; ++line) {
    ASSERT_TRUE(pair.sender.append_whole(frame_of(0), {}));
  }
  ASSERT_TRUE(pair.write(2 * kLine));
  for (const std::uint64_t position : {std::uint64_t{1}, std::uint64_t{63}, 3 * std::uint64_t{64},
                                       std::uint64_t{4096}, ~std::uint64_t{0} - 63}) {
    EXPECT_FALSE(pair.sender.consumed(position)) << position;
    EXPECT_FALSE(pair.sender.rewind(position)) << position;
  }
  EXPECT_EQ(pair.sender.consumed(), 0u);
  EXPECT_EQ(pair.sender.posted(), 2 * kLine);
  EXPECT_TRUE(pair.sender.consumed(kLine));
  EXPECT_TRUE(pair.sender.consumed(kLine)) << "the same again is possible";
  EXPECT_FALSE(pair.sender.consumed(0)) << "going back is not";
  EXPECT_FALSE(pair.sender.rewind(0));
}

TEST(SendRing, RewindWritesTheUnconsumedAgain) {
  RingPair pair(4096);
  for (std::uint64_t number = 0; number < 3; ++number) {
    ASSERT_TRUE(pair.sender.append_whole(frame_of(0, number), {}));
  }
  pair.write_all();
  ReceiveRing::Record record;
  ASSERT_TRUE(pair.peek(&record));
  pair.receiver.pop();
  ASSERT_TRUE(pair.peek(&record));
  pair.receiver.restart();
  EXPECT_FALSE(pair.peek(&record)) << "nothing counts until it is announced again";
  ASSERT_TRUE(pair.sender.rewind(pair.receiver.consumed()));
  EXPECT_TRUE(pair.sender.is_posted(0));
  EXPECT_FALSE(pair.sender.is_posted(kLine));
  pair.write_all();
  for (std::uint64_t number = 1; number < 3; ++number) {
    ASSERT_TRUE(pair.peek(&record));
    EXPECT_EQ(record.header.sequence, number);
    pair.receiver.pop();
  }
  EXPECT_FALSE(pair.peek(&record));
}

// The bits of an immediate come again after 64 GiB.
TEST(ReceiveRing, WhatIsNewIsNotTakenForWhatIsHadThoughItsBitsComeAgain) {
  constexpr std::size_t kBytes = 256 * 1024;
  const Memory memory(kBytes);
  ReceiveRing ring(memory.span());
  const auto put = [&](std::size_t offset, RecordKind kind, std::size_t payload) {
    FrameHeader header = frame_of(payload);
    header.reserved = static_cast<std::uint16_t>(kind);
    std::memcpy(memory.begin.get() + offset, &header, sizeof header);
  };
  ReceiveRing::Record record;
  put(0, RecordKind::kWhole, kLine);
  ASSERT_TRUE(ring.written(2).ok());
  ASSERT_TRUE(*ring.peek(&record));
  ring.restart();
  ring.pop();  // two lines that are had, and will be announced again
  put(0, RecordKind::kSkip, kBytes - kLine);
  put(2 * kLine, RecordKind::kSkip, kBytes - 3 * kLine);
  constexpr std::uint64_t kAgain = (kImmediateMask + 1) * kLine;
  while (ring.consumed() < kAgain) {
    ASSERT_TRUE(ring.written_up_to(ring.consumed() + kBytes - ring.consumed() % kBytes).ok());
    ASSERT_FALSE(*ring.peek(&record));
  }
  ASSERT_EQ(ring.consumed(), kAgain);
  ASSERT_TRUE(ring.written(1).ok());
  EXPECT_EQ(ring.written(), kAgain + kLine);
}

TEST(SendRing, MovedSourceCountsWhenTheRecordIsWrittenAgain) {
  RingPair pair(4096);
  const std::optional<std::uint64_t> lent = pair.sender.append_lent(frame_of(9999), source_of(1));
  ASSERT_TRUE(lent.has_value());
  pair.write_all();
  pair.sender.move_source(*lent, source_of(2));
  ReceiveRing::Record record;
  ASSERT_TRUE(pair.peek(&record));
  EXPECT_TRUE(equal(record.source, source_of(1)));
  pair.receiver.restart();
  ASSERT_TRUE(pair.sender.rewind(0));
  pair.write_all();
  ASSERT_TRUE(pair.peek(&record));
  EXPECT_TRUE(equal(record.source, source_of(2)));
  EXPECT_TRUE(equal(record.header, frame_of(9999)));
}

TEST(SendRing, MovedSourceOfAConsumedRecordTouchesNothing) {
  RingPair pair(4096);
  const std::optional<std::uint64_t> lent = pair.sender.append_lent(frame_of(9999), source_of(1));
  ASSERT_TRUE(lent.has_value());
  for (int line = 0; line < 62; ++line) {
    ASSERT_TRUE(pair.sender.append_whole(frame_of(0), {}));
  }
  pair.write_all();
  ASSERT_TRUE(pair.sender.consumed(2 * kLine));
  // Another record takes its place.
  ASSERT_TRUE(pair.sender.append_whole(frame_of(64), bytes_of(64, 7)));
  const std::vector<std::byte> before(pair.here.span().begin(), pair.here.span().end());
  pair.sender.move_source(*lent, source_of(2));
  EXPECT_TRUE(std::equal(before.begin(), before.end(), pair.here.span().begin()));
}

}  // namespace
}  // namespace unisono::verbs::test
