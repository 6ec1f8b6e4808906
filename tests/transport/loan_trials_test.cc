// Whether messages in private memory are lent, of times that are made up.
#include "transports/shm/loan_trials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace unisono::shm {
namespace {

using testing::Each;

constexpr std::size_t kMessage = std::size_t{4} << 20;
// Messages until there is a decision: the first one, or where both ways are close.
constexpr int kUntilDecided = 1 + kRows * kRowTimes;
constexpr int kProvisional = 1 + kMessagesUntilLong;
constexpr int kUntilLongDecided = kUntilDecided + kProvisional + 2 * kLongRowTimes;

FrameHeader frame_of(std::uint64_t number, std::size_t bytes = kMessage, std::size_t offset = 0) {
  FrameHeader header;
  header.kind = FrameKind::kData;
  header.frame_class = FrameClass::kPointToPoint;
  header.sequence = number;
  header.offset = offset;
  header.total_bytes = bytes;
  header.payload_bytes = static_cast<std::uint32_t>(std::min(kFramePayloadMax, bytes - offset));
  return header;
}

/// A writer, and what its reader tells.
struct Writer {
  explicit Writer(TrialMemory* memory = nullptr) : trials(&told, memory) {}
  MessageTimes told{};
  LoanTrials trials;
  std::uint64_t number = 0;

  /// Whether each of so many messages was lent; `time` says how long the next one takes.
  std::vector<bool> send(int messages, const std::function<std::uint32_t(bool is_lent)>& time,
                         const ReceivedMessages* followed = nullptr, std::size_t bytes = kMessage) {
    std::vector<bool> lent;
    for (int i = 0; i < messages; ++i) {
      lent.push_back(trials.lends(frame_of(++number, bytes), followed));
      const std::uint64_t took = time(lent.back());
      if (took != 0) told.of_size[size_of_message(bytes)] = number << 32 | took;
    }
    return lent;
  }
  std::vector<bool> send(int messages, std::uint32_t by_ring, std::uint32_t lent) {
    return send(messages, [=](bool is_lent) { return is_lent ? lent : by_ring; });
  }
};

TEST(LoanTrials, TheFasterWayIsTaken) {
  Writer lends;
  EXPECT_THAT(lends.send(kUntilDecided, 200, 100),
              testing::AllOf(testing::Contains(true).Times(8)));
  EXPECT_THAT(lends.send(100, 200, 100), Each(true));
  Writer copies;
  copies.send(kUntilDecided, 100, 200);
  EXPECT_THAT(copies.send(100, 100, 200), Each(false));
}

// Lent messages are slow at first, until a cache holds what they read.
TEST(LoanTrials, LongRowsFollowWhereBothWaysAreClose) {
  TrialMemory memory{};
  Writer writer(&memory);
  std::uint32_t in_a_row = 0;
  const auto time = [&](bool is_lent) {
    in_a_row = is_lent ? in_a_row + 1 : 0;
    return is_lent ? 200 - 10 * std::min(in_a_row, 12u) : 150;
  };
  writer.send(kUntilDecided, time);
  EXPECT_THAT(writer.send(kProvisional, time), Each(false));
  EXPECT_THAT(writer.send(kLongRowTimes, time), Each(false));
  EXPECT_THAT(writer.send(kLongRowTimes, time), Each(true));
  EXPECT_THAT(writer.send(kMessagesUntilNext, time), Each(true));
  const auto size = static_cast<std::size_t>(size_of_message(kMessage));
  EXPECT_THAT(learned_by(memory).messages[size], testing::ElementsAre(150, 100));
  writer.send(kUntilDecided, time);
  EXPECT_THAT(writer.send(kProvisional, time), Each(true)) << "short rows change nothing";
}

// The first times that a ring is gone around both ranks meet its pages.
TEST(LoanTrials, BeginOnceTheRingIsSettled) {
  constexpr std::size_t kShort = 2 * kTriedMessageMin;
  constexpr std::size_t kPagesMet = 2 * kSegmentRingBytesMax;
  Writer writer;
  std::size_t through_ring = 0;
  const auto time = [&](bool is_lent) -> std::uint32_t {
    if (!is_lent) through_ring += kShort;
    EXPECT_TRUE(!is_lent || through_ring >= kPagesMet);
    if (is_lent) return 100;
    return through_ring <= kPagesMet ? 500 : 60;
  };
  EXPECT_THAT(writer.send(100, time, nullptr, kShort), testing::Contains(true));
  EXPECT_THAT(writer.send(100, time, nullptr, kShort), Each(false));
}

TEST(LoanTrials, WhatIsFarBehindIsNotTriedInLongRows) {
  Writer writer;
  writer.send(kUntilDecided, 200, 100);
  EXPECT_THAT(writer.send(kMessagesUntilNext, 200, 100), Each(true));
}

TEST(LoanTrials, WhatIsHardlyFasterStaysInTheRing) {
  Writer writer;
  writer.send(kUntilLongDecided, 100, 98);
  EXPECT_THAT(writer.send(100, 100, 98), Each(false));
}

// The first of a row finds the caches as the other way has left them; one may be passed by nobody.
TEST(LoanTrials, ALuckyMessageDecidesNothing) {
  for (std::uint32_t lucky = 0; lucky < kRowTimes; ++lucky) {
    Writer writer;
    std::uint32_t sent = 0;
    writer.send(kUntilDecided, [&](bool is_lent) -> std::uint32_t {
      const std::uint32_t place = (sent++ + kRowTimes - 1) % kRowTimes;
      if (is_lent) return 100;
      return place == lucky ? 10 : 200;
    });
    EXPECT_THAT(writer.send(10, 200, 100), Each(true)) << lucky;
  }
}

TEST(LoanTrials, WithoutTimesNothingIsLent) {
  Writer writer;
  writer.send(kUntilDecided, 0, 0);
  EXPECT_THAT(writer.send(100, 0, 0), Each(false));
}

TEST(LoanTrials, ATimeOfAnotherMessageIsNone) {
  Writer writer;
  writer.told.of_size[size_of_message(kMessage)] = std::uint64_t{12345} << 32 | 1;
  writer.send(2 * static_cast<int>(kRowMessagesMax),
              [](bool is_lent) { return is_lent ? 0u : 100u; });
  EXPECT_THAT(writer.send(100, 100, 0), Each(false));
}

TEST(LoanTrials, AreMadeAgain) {
  Writer writer;
  writer.send(kUntilDecided, 200, 100);
  EXPECT_THAT(writer.send(kMessagesUntilNext, 100, 200), Each(true));
  writer.send(kUntilDecided, 100, 200);
  EXPECT_THAT(writer.send(100, 100, 200), Each(false));
}

TEST(LoanTrials, BeginWithWhatAnEarlierJobLearned) {
  const auto size = static_cast<std::size_t>(size_of_message(kMessage));
  TrialMemory memory{};
  Writer first(&memory);
  first.send(kUntilDecided, 200, 100);
  first.send(1, 200, 100);
  EXPECT_THAT(learned_by(memory).messages[size], testing::ElementsAre(200, 100));
  TrialMemory next{.known = learned_by(memory)};
  Writer second(&next);
  constexpr int kKept = kMessagesUntilNext / kKnownDivisor;
  EXPECT_THAT(second.send(kKept, 100, 200), Each(true));
  EXPECT_FALSE(knows_any(learned_by(next))) << "nothing was tried";
  second.send(kUntilDecided, 100, 200);
  EXPECT_THAT(second.send(100, 100, 200), Each(false)) << "it is not true any more";
  EXPECT_THAT(learned_by(next).messages[size], testing::ElementsAre(100, 200));
}

constexpr int kUntilChecked = kMessagesUntilCheck + kCheckCalls + 1;

TEST(LoanTrials, WhatTakesMoreThanTwiceWhatIsKnownIsTriedAgainSoon) {
  const auto size = static_cast<std::size_t>(size_of_message(kMessage));
  TrialMemory memory{};
  memory.known.messages[size] = {100, 160};
  Writer writer(&memory);
  EXPECT_THAT(writer.send(kMessagesUntilCheck, 210, 100), Each(false));
  writer.send(kUntilChecked + kUntilDecided, 210, 100);
  EXPECT_THAT(writer.send(100, 210, 100), Each(true));
}

TEST(LoanTrials, SoIsWhatTakesMoreThanTwiceWhatItTookWhenItWasDecided) {
  Writer writer;
  writer.send(kUntilDecided, 200, 100);
  ASSERT_THAT(writer.send(100, 200, 100), Each(true));
  writer.send(2 * kUntilChecked + kUntilDecided, 120, 210);  // one check found no change
  EXPECT_THAT(writer.send(100, 120, 210), Each(false));
}

TEST(LoanTrials, ACheckThatTrialsInterruptLeavesThemNoTimes) {
  const auto size = static_cast<std::size_t>(size_of_message(kMessage));
  TrialMemory memory{};
  memory.known.messages[size] = {150, 100};  // lent
  Writer writer(&memory);
  // Where no time is told a check takes kRowMessagesMax messages. The third one is under way.
  constexpr int kKept = kMessagesUntilNext / kKnownDivisor;
  constexpr int kAfterFirst = 100;
  static_assert(3 * kMessagesUntilCheck + 2 * kRowMessagesMax < kKept + kAfterFirst);
  writer.send(kAfterFirst, 150, 100);
  writer.send(kKept - kAfterFirst - 2, 0, 0);
  EXPECT_THAT(writer.send(2, 150, 100), Each(true));
  EXPECT_THAT(writer.send(kRowTimes, 150, 100), Each(false)) << "the row is whole";
  EXPECT_THAT(writer.send(kRowTimes, 150, 100), Each(true));
}

TEST(LoanTrials, WithoutTimesWhatWasDecidedStays) {
  Writer writer;
  writer.send(kUntilDecided, 200, 100);
  writer.send(kMessagesUntilNext, 0, 0);
  writer.send(1 + static_cast<int>(kRowMessagesMax), 0, 0);
  EXPECT_THAT(writer.send(100, 0, 0), Each(true));
}

// Several messages are on their way; the reader tells of one when the next ones have begun.
TEST(LoanTrials, ReadersMayBeBehind) {
  MessageTimes told{};
  LoanTrials trials(&told);
  std::vector<bool> lent{false};
  for (std::uint64_t number = 1; number <= 200; ++number) {
    lent.push_back(trials.lends(frame_of(number), nullptr));
    if (number < 6) continue;
    const std::uint64_t read = number - 5;
    told.of_size[size_of_message(kMessage)] = read << 32 | (lent[read] ? 100 : 200);
  }
  EXPECT_TRUE(lent.back());
  EXPECT_THAT(std::vector<bool>(lent.end() - 100, lent.end()), Each(true));
}

TEST(LoanTrials, AMessageGoesOneWay) {
  Writer writer;
  for (std::uint64_t number = 1; number < 2 * kUntilDecided; ++number) {
    const bool lent = writer.trials.lends(frame_of(number), nullptr);
    for (std::size_t offset = 0; offset < kMessage; offset += kFramePayloadMax) {
      EXPECT_EQ(writer.trials.lends(frame_of(number, kMessage, offset), nullptr), lent);
    }
  }
}

TEST(LoanTrials, ShortMessagesAreNotTried) {
  Writer writer;
  for (std::uint64_t number = 1; number < 100; ++number) {
    EXPECT_FALSE(writer.trials.lends(frame_of(number, kTriedMessageMin - 1), nullptr));
  }
  EXPECT_EQ(size_of_message(kTriedMessageMin), 0);
  EXPECT_EQ(size_of_message(UINT64_MAX), kMessageSizes - 1);
}

TEST(LoanTrials, WhoFollowsSendsAsItReceives) {
  Writer writer;
  ReceivedMessages received;
  auto& last = received.of_size[static_cast<std::size_t>(size_of_message(kMessage))];
  for (int i = 0; i < 100; ++i) {
    ++last.count;
    last.last_was_lent = i % 3 == 0;
    const auto lent = writer.send(
        1, [](bool) { return 0u; }, &received);
    EXPECT_EQ(lent.front(), last.last_was_lent);
  }
  // Nothing comes any more: it decides itself, after a while.
  const auto time = [](bool is_lent) { return is_lent ? 100u : 200u; };
  writer.send(static_cast<int>(kFollowingMessages) + kUntilDecided, time, &received);
  EXPECT_THAT(writer.send(100, time, &received), Each(true));
}

/// Both ends of a ring that carries nothing.
TEST(MessageTimer, TellsOnceTheLastByteIsHere) {
  MessageTimes told{};
  MessageTimer timer(&told);
  const std::size_t bytes = 2 * kFramePayloadMax + 1;
  std::uint64_t& word = told.of_size[size_of_message(bytes)];
  for (std::uint64_t number = 7; number < 9; ++number) {
    timer.grant(frame_of(number, bytes));
    for (std::size_t offset = 0; offset < bytes; offset += kFramePayloadMax) {
      EXPECT_NE(word >> 32, number) << offset;
      timer.begin(frame_of(number, bytes, offset), number == 8);
      timer.end(frame_of(number, bytes, offset));
    }
    EXPECT_EQ(word >> 32, number);
    EXPECT_NE(word & UINT32_MAX, 0u);
    const auto& received =
        timer.received().of_size[static_cast<std::size_t>(size_of_message(bytes))];
    EXPECT_EQ(received.count, number - 6);
    EXPECT_EQ(received.last_was_lent, number == 8);
  }
}

TEST(MessageTimer, TellsOnceWhatPassesItIsSentToo) {
  MessageTimes told{};
  MessageTimer timer(&told);
  const std::size_t bytes = kFramePayloadMax + 1;
  const std::uint64_t& word = told.of_size[size_of_message(bytes)];
  const auto receive = [&](std::uint64_t number) {
    timer.grant(frame_of(number, bytes));
    for (const std::size_t offset : {std::size_t{0}, kFramePayloadMax}) {
      timer.begin(frame_of(number, bytes, offset), false);
      timer.end(frame_of(number, bytes, offset));
    }
  };
  timer.begin_sending(frame_of(9, bytes));
  receive(1);
  timer.end_sending();
  EXPECT_EQ(word, 0u) << "a frame is sent, and not the message";
  timer.begin_sending(frame_of(9, bytes, kFramePayloadMax));
  EXPECT_EQ(word, 0u);
  timer.end_sending();
  EXPECT_EQ(word >> 32, 1u);
  timer.begin_sending(frame_of(10, bytes));
  receive(2);
  EXPECT_EQ(word >> 32, 1u);
  receive(3);
  EXPECT_EQ(word >> 32, 2u) << "the next one has come before that";
  timer.begin_sending(frame_of(11, 4 * bytes));
  receive(4);
  EXPECT_EQ(word >> 32, 4u) << "what passes it is of another size";
}

TEST(MessageTimer, OfAMessageWhoseBeginningIsUnknownNothingIsTold) {
  MessageTimes told{};
  MessageTimer timer(&told);
  const std::size_t bytes = 2 * kFramePayloadMax;
  timer.begin(frame_of(5, bytes, kFramePayloadMax), false);
  timer.end(frame_of(5, bytes, kFramePayloadMax));
  EXPECT_EQ(told.of_size[size_of_message(bytes)], 0u);
}

}  // namespace
}  // namespace unisono::shm
