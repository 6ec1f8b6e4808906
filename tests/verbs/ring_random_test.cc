// A long random run of a ring is compared with a queue.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <random>

#include "tests/verbs/ring_pair.h"

namespace unisono::verbs::test {
namespace {

// A queue beside the rings says what must come out.
class RandomRun {
 public:
  RandomRun(std::size_t ring_bytes, bool has_sums, unsigned seed)
      : pair_(ring_bytes, has_sums), has_sums_(has_sums), random_(seed) {}

  void run(int records) {
    while (number_ < static_cast<std::uint64_t>(records) || !expected_.empty()) {
      if (testing::Test::HasFailure()) return;
      switch (draw(8)) {
        case 0:
        case 1:
          if (number_ < static_cast<std::uint64_t>(records)) append();
          break;
        case 2:
        case 3:
          pair_.write(kLine * (1 + draw(draw(2) == 0 ? 4 : 80)));
          break;
        case 4:
        case 5:
          consume();
          break;
        case 6:
          EXPECT_TRUE(pair_.sender.consumed(pair_.receiver.consumed()));
          break;
        default:
          change();
      }
      check();
    }
    EXPECT_EQ(pair_.receiver.consumed(), pair_.sender.appended());
  }

  int replays() const { return replays_; }
  int moves() const { return moves_; }

 private:
  struct Expected {
    std::uint64_t position = 0;
    FrameHeader header;
    RecordKind kind = RecordKind::kWhole;
    std::vector<std::byte> payload;
    Source source;
    Source seen_source;  // as the peer's ring has it
  };

  std::size_t draw(std::size_t below) { return random_() % below; }

  void append() {
    Expected next;
    next.kind = draw(3) == 0 ? RecordKind::kLent : RecordKind::kWhole;
    const std::size_t ring = pair_.here.bytes;
    const std::size_t lines = (ring - untold_bytes_max(ring)) / 2 / kLine;
    const std::size_t most = lines * kLine - head_bytes(has_sums_);
    std::size_t bytes = draw(4) == 0 ? 0 : draw(draw(3) == 0 ? most + 1 : 200);
    if (next.kind == RecordKind::kLent) bytes = 1 + draw(kFramePayloadMax);
    next.header = frame_of(bytes, number_);
    const std::uint64_t before = pair_.sender.appended();
    if (!put(&next)) {
      EXPECT_EQ(pair_.sender.appended(), before);
      return;
    }
    next.seen_source = next.source;
    expected_.push_back(std::move(next));
    ++number_;
  }

  bool put(Expected* next) {
    const std::size_t bytes = next->header.payload_bytes;
    std::size_t record = kLentBytes;
    if (next->kind == RecordKind::kLent) {
      next->source = source_of(number_);
      const std::optional<std::uint64_t> at =
          pair_.sender.append_lent(next->header, next->source, number_);
      if (!at) return false;
      next->position = *at;
    } else {
      next->payload = bytes_of(bytes, static_cast<unsigned>(number_));
      if (!pair_.sender.append_whole(next->header, next->payload)) return false;
      record = whole_bytes(bytes, has_sums_);
      next->position = pair_.sender.appended() - record;
    }
    EXPECT_EQ(next->position + record, pair_.sender.appended());
    return true;
  }

  void consume() {
    for (std::size_t count = draw(6); count > 0; --count) {
      ReceiveRing::Record record;
      if (!pair_.peek(&record)) return;
      ASSERT_FALSE(expected_.empty());
      const Expected& next = expected_.front();
      ASSERT_EQ(record.kind, next.kind);
      ASSERT_TRUE(equal(record.header, next.header)) << next.header.sequence;
      ASSERT_TRUE(std::equal(next.payload.begin(), next.payload.end(), record.payload.begin(),
                             record.payload.end()));
      if (next.kind == RecordKind::kLent) {
        ASSERT_TRUE(equal(record.source, next.seen_source));
      }
      if (has_sums_) {
        const bool lent = next.kind == RecordKind::kLent;
        ASSERT_EQ(record.payload_sum, lent ? next.header.sequence : sum_of_payload(record.payload));
      }
      pair_.receiver.pop();
      expected_.pop_front();
    }
  }

  void change() {
    if (draw(3) == 0) return replay();
    if (expected_.empty()) return;
    Expected& chosen = expected_[draw(expected_.size())];
    if (chosen.kind != RecordKind::kLent) return;
    chosen.source = source_of(random_() % 1000000);
    pair_.sender.move_source(chosen.position, chosen.source);
    // The line with the source may be behind what is posted although the header is not.
    if (pair_.sender.posted() < chosen.position + kLentBytes) chosen.seen_source = chosen.source;
    ++moves_;
  }

  // Queue pairs are lost. What the peer has written in part is junk until it is written again.
  void replay() {
    pair_.receiver.restart();
    const std::span<std::byte> there = pair_.there.span();
    const std::uint64_t consumed = pair_.receiver.consumed();
    for (std::uint64_t at = consumed; at < pair_.sender.consumed() + there.size(); at += kLine) {
      std::memset(&there[at % there.size()], static_cast<int>(draw(256)), kLine);
    }
    ASSERT_TRUE(pair_.sender.rewind(consumed));
    for (Expected& each : expected_) each.seen_source = each.source;
    ++replays_;
  }

  void check() {
    const SendRing& sender = pair_.sender;
    EXPECT_LE(sender.consumed(), sender.posted());
    EXPECT_LE(sender.posted(), sender.appended());
    EXPECT_LE(sender.appended() - sender.consumed(), pair_.here.bytes);
    EXPECT_EQ(sender.appended() % kLine, 0u);
    EXPECT_LE(sender.consumed(), pair_.receiver.consumed());
    EXPECT_EQ(sender.posted(), pair_.receiver.written());
  }

  RingPair pair_;
  const bool has_sums_;
  std::mt19937 random_;
  std::deque<Expected> expected_;
  std::uint64_t number_ = 0;
  int replays_ = 0;
  int moves_ = 0;
};

TEST(Rings, HundredThousandRandomRecordsComeOutAsAQueueWould) {
  unsigned seed = 100;
  // Sizes that are no powers of two put the wrap everywhere.
  for (const std::size_t ring_bytes : {4096u, 4096u + 64, 7 * 1024u, 64 * 1024u}) {
    RandomRun run(ring_bytes, false, ++seed);
    run.run(25000);
    EXPECT_GT(run.replays(), 1000);
    EXPECT_GT(run.moves(), 100);
  }
}

TEST(Rings, RecordsWithSumsAreFoundWholeHoweverTheyComeAndAreRepeated) {
  unsigned seed = 200;
  for (const std::size_t ring_bytes : {4096u, 4096u + 64, 64 * 1024u}) {
    RandomRun run(ring_bytes, true, ++seed);
    run.run(10000);
    EXPECT_GT(run.replays(), 400);
    EXPECT_GT(run.moves(), 40);
  }
}

}  // namespace
}  // namespace unisono::verbs::test
