// A ring whose writer is hostile: what comes out of it lies inside it, and rubbish is an error.
#include <gmock/gmock.h>

#include <cstring>
#include <optional>
#include <random>
#include <string>

#include "tests/verbs/ring_pair.h"
#include "tests/verbs/sum_head.h"

namespace unisono::verbs::test {
namespace {

using testing::HasSubstr;

TEST(ReceiveRing, ImmediateBeyondTheRingIsRefused) {
  Memory memory(4096);
  ReceiveRing ring(memory.span());
  const Status status = ring.written(65);
  EXPECT_EQ(status.code(), ErrorCode::kProtocol);
  EXPECT_THAT(status.message(), HasSubstr("4160 bytes"));
  EXPECT_EQ(ring.written(), 0u);
  EXPECT_TRUE(ring.written(64).ok());
  EXPECT_TRUE(ring.written(64).ok());
  EXPECT_EQ(ring.written(63).code(), ErrorCode::kProtocol) << "what is written stays written";
}

TEST(ReceiveRing, PositionsGoOnPastTheImmediatesThirtyBits) {
  Memory memory(4096);
  ReceiveRing ring(memory.span());
  FrameHeader skip;
  skip.payload_bytes = static_cast<std::uint32_t>(memory.bytes / 2 - kLine);
  skip.reserved = static_cast<std::uint16_t>(RecordKind::kSkip);
  std::memcpy(memory.begin.get(), &skip, sizeof skip);
  std::memcpy(memory.begin.get() + memory.bytes / 2, &skip, sizeof skip);
  const std::uint64_t lines = std::uint64_t{1} << 30;
  ReceiveRing::Record record;
  for (std::uint64_t at = 64; at <= lines + 128; at += 64) {
    ASSERT_TRUE(ring.written(static_cast<std::uint32_t>(at & kImmediateMask)).ok());
    ASSERT_FALSE(*ring.peek(&record));
  }
  EXPECT_EQ(ring.consumed(), (lines + 128) * kLine);
}

// Puts `header` at `line` behind lines that are skipped, announces everything, and looks.
Status look_at(const Memory& memory, std::size_t line, const FrameHeader& header) {
  FrameHeader skip;
  skip.reserved = static_cast<std::uint16_t>(RecordKind::kSkip);
  for (std::size_t each = 0; each < memory.bytes / kLine; ++each) {
    std::memcpy(memory.begin.get() + each * kLine, each == line ? &header : &skip, sizeof skip);
  }
  ReceiveRing ring(memory.span());
  EXPECT_TRUE(ring.written(static_cast<std::uint32_t>(memory.bytes / kLine)).ok());
  ReceiveRing::Record record;
  return ring.peek(&record).status();
}

TEST(ReceiveRing, RecordAcrossTheRingsEndIsRefused) {
  Memory memory(4096);
  for (const auto kind : {RecordKind::kWhole, RecordKind::kLent, RecordKind::kSkip}) {
    FrameHeader header = frame_of(64);
    header.reserved = static_cast<std::uint16_t>(kind);
    EXPECT_TRUE(look_at(memory, 62, header).ok());
    EXPECT_EQ(look_at(memory, 63, header).code(), ErrorCode::kProtocol);
    header.payload_bytes = kFramePayloadMax;
    if (kind != RecordKind::kLent) {
      EXPECT_EQ(look_at(memory, 0, header).code(), ErrorCode::kProtocol);
    }
  }
}

TEST(ReceiveRing, ErrorSaysWhatTheRingHolds) {
  Memory memory(4096);
  FrameHeader header = frame_of(kFramePayloadMax + 1);
  header.reserved = static_cast<std::uint16_t>(RecordKind::kWhole);
  const Status status = look_at(memory, 3, header);
  EXPECT_EQ(status.code(), ErrorCode::kProtocol);
  EXPECT_THAT(status.message(), HasSubstr("at byte 192 of 4096"));
  EXPECT_THAT(status.message(), HasSubstr("262145 payload bytes"));
}

TEST(ReceiveRing, RecordThatChangesBetweenPeekAndPopKeepsItsSize) {
  RingPair pair(4096);
  ASSERT_TRUE(pair.sender.append_whole(frame_of(100, 1), bytes_of(100, 0)));
  ASSERT_TRUE(pair.sender.append_whole(frame_of(0, 2), {}));
  pair.write_all();
  ReceiveRing::Record record;
  ASSERT_TRUE(pair.peek(&record));
  std::memset(pair.there.begin.get(), 0xff, kLine);
  EXPECT_EQ(record.payload.size(), 100u);
  EXPECT_TRUE(equal(record.header, frame_of(100, 1)));
  pair.receiver.pop();
  EXPECT_EQ(pair.receiver.consumed(), 192u);
  ASSERT_TRUE(pair.peek(&record));
  EXPECT_EQ(record.header.sequence, 2u);
}

// What comes out of a hostile ring lies inside it, and rubbish ends with kProtocol: also where
// records have checksums, which its writer makes right for whatever comes next.
class Hostile {
 public:
  Hostile(std::size_t bytes, bool has_sums)
      : memory(bytes),
        ring(memory.span(), has_sums ? std::optional<Rank>(RingPair::kPeer) : std::nullopt),
        has_sums_(has_sums) {}

  // Returns false once the peer was found out.
  bool announce(std::uint32_t immediate) {
    const std::optional<Immediate> decoded = decode_immediate(immediate);
    if (!decoded) return false;
    const Status status = ring.written(decoded->value);
    EXPECT_TRUE(status.ok() || status.code() == ErrorCode::kProtocol);
    EXPECT_LE(ring.written() - ring.consumed(), memory.bytes);
    return status.ok();
  }
  bool drain() {
    while (true) {
      ReceiveRing::Record record;
      const std::uint64_t before = ring.consumed();
      if (has_sums_) sum_head_at(memory.span(), before);
      const Result<bool> found = ring.peek(&record);
      EXPECT_LE(ring.consumed(), ring.written());
      if (!found) {
        // Behind a skip there is a head that is not summed yet.
        if (has_sums_ && found.error().code() == ErrorCode::kCorrupted &&
            ring.consumed() > before) {
          continue;
        }
        EXPECT_EQ(found.error().code(), ErrorCode::kProtocol);
        return false;
      }
      if (!*found) return true;
      ++records;
      EXPECT_EQ(record.header.reserved, 0);
      EXPECT_LE(record.header.payload_bytes, kFramePayloadMax);
      if (record.kind == RecordKind::kWhole) {
        EXPECT_EQ(record.payload.size(), record.header.payload_bytes);
        for (const std::byte byte : record.payload) sum += std::to_integer<unsigned>(byte);
      }
      ring.pop();
    }
  }

  Memory memory;
  ReceiveRing ring;
  std::uint64_t records = 0;
  unsigned sum = 0;  // so that every byte is read

 private:
  const bool has_sums_;
};

class HostileRing : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Verbs, HostileRing, testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "with_sums" : "plain");
});

TEST_P(HostileRing, RandomBytesAndImmediatesAreHarmless) {
  std::mt19937 random(5);
  int found_out = 0;
  for (int round = 0; round < 2000; ++round) {
    Hostile hostile(4096 + 64 * (random() % 8), GetParam());
    for (std::byte& byte : hostile.memory.span()) byte = static_cast<std::byte>(random());
    for (int step = 0; step < 8; ++step) {
      const std::uint32_t value = random() % 2 == 0 ? random() : random() % 130;
      if (!hostile.announce(value) || !hostile.drain()) {
        ++found_out;
        break;
      }
    }
  }
  EXPECT_GT(found_out, 1900);
}

TEST_P(HostileRing, RandomHeadersAreHarmless) {
  std::mt19937 random(6);
  std::uint64_t records = 0;
  int found_out = 0;
  for (int round = 0; round < 5000; ++round) {
    Hostile hostile(4096, GetParam());
    for (std::size_t line = 0; line < 64; ++line) {
      FrameHeader header = frame_of(random() % 3 == 0 ? random() % 8000 : random() % 300);
      header.reserved =
          static_cast<std::uint16_t>(random() % 40 == 0 ? random() % 6 : 1 + random() % 2);
      if (random() % 200 == 0) header.payload_bytes = static_cast<std::uint32_t>(random());
      std::memcpy(hostile.memory.begin.get() + line * kLine, &header, sizeof header);
    }
    std::uint64_t line = 0;
    while (line < 200) {
      line += random() % 40;
      if (!hostile.announce(encode(ImmediateKind::kWritten, line)) || !hostile.drain()) {
        ++found_out;
        break;
      }
    }
    records += hostile.records;
  }
  EXPECT_GT(records, 5000u);
  EXPECT_GT(found_out, 1000);
}

TEST_P(HostileRing, MutatedRecordsAreHarmless) {
  std::mt19937 random(7);
  std::uint64_t records = 0;
  int found_out = 0;
  for (int round = 0; round < 5000; ++round) {
    Memory copy(4096);
    SendRing sender(copy.span(), GetParam());
    for (std::uint64_t number = 0; number < 30; ++number) {
      const std::size_t bytes = random() % 400;
      if (number % 3 == 0) {
        sender.append_lent(frame_of(bytes + 1, number), source_of(number));
      } else {
        sender.append_whole(frame_of(bytes, number), bytes_of(bytes, 0));
      }
    }
    Hostile hostile(4096, GetParam());
    std::memcpy(hostile.memory.begin.get(), copy.begin.get(), copy.bytes);
    for (std::size_t flips = random() % 40; flips > 0; --flips) {
      // Mostly in the first words of lines, where sizes and kinds are.
      const std::size_t at = random() % 64 * kLine + random() % (random() % 4 == 0 ? 64 : 8);
      hostile.memory.begin[at] ^= static_cast<std::byte>(1 << random() % 8);
    }
    const bool fine =
        hostile.announce(encode(ImmediateKind::kWritten, sender.appended() / kLine)) &&
        hostile.drain();
    if (!fine) ++found_out;
    records += hostile.records;
  }
  EXPECT_GT(found_out, 1000);
  EXPECT_GT(records, 5000u);
}

}  // namespace
}  // namespace unisono::verbs::test
