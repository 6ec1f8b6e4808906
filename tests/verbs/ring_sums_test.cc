// Records with checksums: no bit of one changes, and none comes in another's place, without an
// error before anything in it is believed.
#include <gmock/gmock.h>

#include <cstring>
#include <functional>
#include <string>

#include "tests/verbs/ring_pair.h"

namespace unisono::verbs::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::size_t kRing = 4096;
constexpr std::size_t kPayload = 100;

// What is wrong with the record that comes next: with its head, or with its payload.
Status judge(ReceiveRing& ring) {
  ReceiveRing::Record record;
  const Result<bool> found = ring.peek(&record);
  if (!found) return found.error();
  if (!*found) return Status(ErrorCode::kTimeout, "nothing is there");
  if (record.kind == RecordKind::kLent) return {};
  const std::uint64_t sum = sum_of_payload(record.payload);
  if (sum == record.payload_sum) return {};
  return payload_changed(RingPair::kPeer, record.header, sum, record.payload_sum);
}

// Each bit of the first `bytes` of what has come, one after the other.
void expect_every_bit_counts(RingPair& pair, std::size_t begin, std::size_t bytes) {
  std::byte* const there = pair.there.begin.get() + begin;
  for (std::size_t bit = 0; bit < 8 * bytes; ++bit) {
    const auto mask = static_cast<std::byte>(1 << bit % 8);
    there[bit / 8] ^= mask;
    ReceiveRing looking = pair.receiver;
    const Status status = judge(looking);
    ASSERT_EQ(status.code(), ErrorCode::kCorrupted) << "bit " << bit << ": " << status.message();
    ASSERT_EQ(status.rank(), RingPair::kPeer);
    there[bit / 8] ^= mask;
  }
  EXPECT_TRUE(judge(pair.receiver).ok());
}

TEST(SummedRing, EveryBitOfAWholeRecordCounts) {
  RingPair pair(kRing, true);
  ASSERT_TRUE(pair.sender.append_whole(frame_of(kPayload), bytes_of(kPayload, 1)));
  EXPECT_EQ(pair.sender.appended(), whole_bytes(kPayload, true));
  pair.write_all();
  expect_every_bit_counts(pair, 0, sizeof(RecordHead) + kPayload);
}

TEST(SummedRing, EveryBitOfALentRecordCounts) {
  RingPair pair(kRing, true);
  const auto lent = pair.sender.append_lent(frame_of(9999), source_of(1), 77);
  ASSERT_TRUE(lent.has_value());
  pair.sender.move_source(*lent, source_of(2));
  pair.write_all();
  expect_every_bit_counts(pair, 0, kLentBytes);
  ReceiveRing::Record record;
  ASSERT_TRUE(pair.peek(&record));
  EXPECT_TRUE(equal(record.source, source_of(2)));
  EXPECT_EQ(record.payload_sum, 77u);
}

// One line is left, which no other record has room in, or two.
TEST(SummedRing, EveryBitOfASkipCounts) {
  for (const std::size_t left : {kLine, 2 * kLine}) {
    RingPair pair(kRing, true);
    const std::size_t quarter = kRing / 4 - sizeof(RecordHead);
    for (const std::size_t bytes : {quarter, quarter, quarter, quarter - left}) {
      ASSERT_TRUE(pair.sender.append_whole(frame_of(bytes), bytes_of(bytes, 1)));
    }
    pair.write_all();
    for (int record = 0; record < 4; ++record) {
      ASSERT_TRUE(judge(pair.receiver).ok());
      pair.receiver.pop();
    }
    ASSERT_TRUE(pair.sender.consumed(pair.receiver.consumed()));
    ASSERT_TRUE(pair.sender.append_whole(frame_of(kPayload), bytes_of(kPayload, 2)));
    pair.write_all();
    std::byte* const skip = pair.there.begin.get() + kRing - left;
    for (std::size_t bit = 0; bit < 8 * kLine; ++bit) {
      const auto mask = static_cast<std::byte>(1 << bit % 8);
      skip[bit / 8] ^= mask;
      ReceiveRing looking = pair.receiver;
      ASSERT_EQ(judge(looking).code(), ErrorCode::kCorrupted) << "bit " << bit;
      skip[bit / 8] ^= mask;
    }
    EXPECT_TRUE(judge(pair.receiver).ok());
  }
}

TEST(SummedRing, HeadOfARecordThatWaitsIsComparedOnceInAnEpoch) {
  RingPair pair(kRing, true);
  ASSERT_TRUE(pair.sender.append_whole(frame_of(kPayload), bytes_of(kPayload, 1)));
  std::byte& last = pair.there.begin[sizeof(RecordHead) - 1];
  ASSERT_TRUE(pair.write(sizeof(RecordHead)));
  EXPECT_EQ(judge(pair.receiver).code(), ErrorCode::kTimeout) << "its payload is not there";
  last ^= std::byte{1};
  EXPECT_EQ(judge(pair.receiver).code(), ErrorCode::kTimeout);
  pair.write_all();
  EXPECT_TRUE(judge(pair.receiver).ok());
  pair.receiver.restart();
  ASSERT_TRUE(pair.sender.rewind(pair.receiver.consumed()));
  pair.write_all();
  last ^= std::byte{1};
  EXPECT_EQ(judge(pair.receiver).code(), ErrorCode::kCorrupted) << "it was written again";
}

// Three records of one size, of which something else lands than what was written.
Status judge_all(const std::function<void(std::byte*)>& change) {
  constexpr std::size_t kRecord = whole_bytes(kPayload, true);
  RingPair pair(kRing, true);
  for (unsigned record = 0; record < 3; ++record) {
    EXPECT_TRUE(pair.sender.append_whole(frame_of(kPayload), bytes_of(kPayload, record)));
  }
  pair.write_all();
  change(pair.there.begin.get());
  for (int record = 0; record < 3; ++record) {
    EXPECT_EQ(pair.receiver.consumed() % kRecord, 0u);
    UNISONO_TRY(judge(pair.receiver));
    pair.receiver.pop();
  }
  return {};
}

TEST(SummedRing, RecordInAnothersPlaceIsFound) {
  constexpr std::size_t kRecord = whole_bytes(kPayload, true);
  EXPECT_TRUE(judge_all([](std::byte*) {}).ok());
  const Status repeated =
      judge_all([](std::byte* ring) { std::memcpy(ring + kRecord, ring, kRecord); });
  EXPECT_EQ(repeated.code(), ErrorCode::kCorrupted);
  EXPECT_THAT(repeated.message(),
              AllOf(HasSubstr("position " + std::to_string(kRecord)), HasSubstr("from rank 4"),
                    HasSubstr("checksum"), HasSubstr("frames before it are lost")));
  const auto swap = [](std::byte* ring) { std::swap_ranges(ring, ring + kRecord, ring + kRecord); };
  EXPECT_EQ(judge_all(swap).code(), ErrorCode::kCorrupted);
  const auto lose = [](std::byte* ring) { std::memset(ring + kRecord, 0, kRecord); };
  EXPECT_EQ(judge_all(lose).code(), ErrorCode::kCorrupted);
}

// What was there when the ring was last filled to this place.
TEST(SummedRing, RecordOfTheRoundBeforeIsFound) {
  RingPair pair(kRing, true);
  constexpr std::size_t kQuarter = kRing / 4 - sizeof(RecordHead);
  const auto put = [&] {
    EXPECT_TRUE(pair.sender.append_whole(frame_of(kQuarter), bytes_of(kQuarter, 1)));
    pair.write_all();
  };
  const auto take = [&] {
    EXPECT_TRUE(judge(pair.receiver).ok());
    pair.receiver.pop();
    EXPECT_TRUE(pair.sender.consumed(pair.receiver.consumed()));
  };
  std::byte* const ring = pair.there.begin.get();
  put();
  const std::vector<std::byte> before(ring, ring + kRing / 4);
  take();
  for (int others = 0; others < 3; ++others) {
    put();
    take();
  }
  put();
  std::copy(before.begin(), before.end(), ring);
  EXPECT_EQ(judge(pair.receiver).code(), ErrorCode::kCorrupted);
}

}  // namespace
}  // namespace unisono::verbs::test
