// Whether a ring's payload is written past the caches, of times that are made up.
#include "transports/shm/store_trials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>

namespace unisono::shm {
namespace {

using namespace std::chrono_literals;
using testing::Each;

constexpr std::size_t kPiece = 16 * 1024;
constexpr int kEnough = 700;  // pieces until there is a decision

struct Times {
  std::chrono::nanoseconds cached;
  std::chrono::nanoseconds streamed;
  Duration of(PieceStores stores) const { return stores.streamed() ? streamed : cached; }
};

/// Both ends of a ring that carries nothing.
class Ring {
 public:
  explicit Ring(TrialMemory* memory = nullptr) : writer_(&told_, memory) {}
  /// Whether each of the pieces was streamed.
  std::vector<bool> write(int pieces, Times times, std::size_t bytes = kPiece) {
    std::vector<bool> streamed;
    for (int piece = 0; piece < pieces; ++piece) {
      const PieceStores stores = writer_.next(bytes);
      timed_last_ = stores.is_trial();
      if (timed_last_) writer_.note(stores, bytes, times.of(stores));
      unread_.push_back({stores, bytes});
      streamed.push_back(stores.streamed());
    }
    return streamed;
  }
  /// Reads all that was written.
  void read(Times times) {
    for (; !unread_.empty(); unread_.pop_front()) {
      const auto [stores, bytes] = unread_.front();
      if (stores.is_trial()) reader_.note(stores, bytes, times.of(stores));
    }
  }
  /// A reader that keeps up.
  std::vector<bool> carry(int pieces, Times write_times, Times read_times,
                          std::size_t bytes = kPiece) {
    std::vector<bool> streamed;
    for (int piece = 0; piece < pieces; ++piece) {
      streamed.push_back(write(1, write_times, bytes).front());
      read(read_times);
    }
    return streamed;
  }
  bool timed_last() const { return timed_last_; }
  bool streams(std::size_t bytes = kPiece) { return write(1, {}, bytes).front(); }

 private:
  ReaderTimes told_{};
  StoreTrials writer_;
  StoreTimer reader_{&told_};
  bool timed_last_ = false;
  std::deque<std::pair<PieceStores, std::size_t>> unread_;
};

TEST(StoreTrials, TakeWhatIsFasterForBothEnds) {
  Ring slow_reader;
  slow_reader.carry(kEnough, {100ns, 300ns}, {1000ns, 200ns});
  EXPECT_TRUE(slow_reader.streams());
  Ring slow_writer;
  slow_writer.carry(kEnough, {100ns, 900ns}, {500ns, 200ns});
  EXPECT_FALSE(slow_writer.streams());
}

TEST(StoreTrials, TryBothKindsBeforeTheyDecide) {
  Ring ring;
  const std::vector<bool> streamed = ring.carry(kEnough, {100ns, 100ns}, {100ns, 200ns});
  EXPECT_FALSE(streamed.front());
  EXPECT_THAT(streamed, testing::Contains(true));
  EXPECT_FALSE(streamed.back());
}

TEST(StoreTrials, TimeWhatIsWrittenOverTheSameKind) {
  ReaderTimes told{};
  constexpr std::size_t kPieces = kSettlingPieces;
  StoreTrials writer(&told);
  StoreTimer reader(&told);
  std::vector<bool> streamed_before(kPieces, true);
  int timed = 0;
  for (std::size_t piece = 0; piece < 100 * kPieces && timed < 100; ++piece) {
    const PieceStores stores = writer.next(kPiece);
    if (stores.is_trial()) {
      ++timed;
      writer.note(stores, kPiece, 100ns);
      reader.note(stores, kPiece, 100ns);
      EXPECT_EQ(streamed_before[piece % kPieces], stores.streamed()) << piece;
    }
    streamed_before[piece % kPieces] = stores.streamed();
  }
  EXPECT_GE(timed, 32);
}

TEST(StoreTrials, StayInTheCachesForALittleGain) {
  Ring ring;
  ring.carry(kEnough, {100ns, 100ns}, {100ns, 96ns});
  EXPECT_FALSE(ring.streams());
}

// Lines that have left both caches come quickly, though most do not.
TEST(StoreTrials, AreNotMisledByASingleQuickPiece) {
  Ring ring;
  for (int piece = 0; piece < kEnough; ++piece) {
    const Duration cached = piece % 8 == 0 ? 100ns : 1000ns;
    ring.carry(1, {100ns, 200ns}, {cached, 200ns});
  }
  EXPECT_TRUE(ring.streams());
}

TEST(StoreTrials, TakeTheBetterOfTwoRows) {
  Ring ring;
  int trials_of_streamed = 0;
  for (int piece = 0; piece < kEnough; ++piece) {
    const bool is_disturbed = trials_of_streamed < 8;
    const bool streamed =
        ring.carry(1, {300ns, 100ns}, {300ns, is_disturbed ? 9000ns : 100ns}).front();
    if (ring.timed_last() && streamed) ++trials_of_streamed;
  }
  EXPECT_TRUE(ring.streams());
}

TEST(StoreTrials, WaitForAReaderThatIsBehind) {
  Ring ring;
  ring.write(kEnough, {100ns, 100ns});
  EXPECT_FALSE(ring.streams());
  ring.read({1000ns, 100ns});
  ring.write(1, {100ns, 100ns});
  EXPECT_TRUE(ring.streams());
}

TEST(StoreTrials, ComeAgainAndForgetEarlierTimes) {
  Ring ring;
  ring.carry(kEnough, {100ns, 100ns}, {1000ns, 100ns});
  ASSERT_TRUE(ring.streams());
  // The reader is behind in the second round: what it told in the first does not count.
  ring.carry(kPiecesUntilNext - kEnough, {100ns, 100ns}, {100ns, 180ns});
  EXPECT_TRUE(ring.streams());
  ring.write(2 * kEnough, {100ns, 100ns});
  EXPECT_TRUE(ring.streams());
  ring.read({100ns, 180ns});
  ring.write(1, {});
  EXPECT_FALSE(ring.streams());
}

TEST(StoreTrials, BeginWithWhatAnEarlierJobLearned) {
  const auto size = static_cast<std::size_t>(size_of_piece(kPiece));
  TrialMemory memory{};
  Ring first(&memory);
  first.carry(kEnough, {100ns, 100ns}, {1000ns, 100ns});
  ASSERT_TRUE(first.streams());
  const TrialFacts learned = learned_by(memory);
  EXPECT_LT(learned.pieces[size][1], learned.pieces[size][0]);
  TrialMemory next{.known = learned};
  Ring second(&next);
  constexpr int kKept = kPiecesUntilNext / kKnownDivisor;
  EXPECT_THAT(second.carry(kKept, {100ns, 100ns}, {100ns, 180ns}), Each(true));
  EXPECT_FALSE(knows_any(learned_by(next))) << "nothing was tried";
  second.carry(kEnough, {100ns, 100ns}, {100ns, 180ns});
  EXPECT_FALSE(second.streams()) << "it is not true any more";
  EXPECT_GT(learned_by(next).pieces[size][1], learned_by(next).pieces[size][0]);
}

// What streamed pieces take now is more than twice what an earlier job found.
TEST(StoreTrials, ComeAtOnceWhereWhatIsKnownIsNotTrueAnyMore) {
  const auto size = static_cast<std::size_t>(size_of_piece(kPiece));
  TrialMemory memory{};
  memory.known.pieces[size] = {40'000, 20'000};  // 625 and 312 ns for a piece
  Ring ring(&memory);
  EXPECT_TRUE(ring.streams());
  ring.carry(kSettlingPieces + kEnough, {100ns, 200ns}, {100ns, 500ns});
  EXPECT_FALSE(ring.streams());
}

TEST(WayChecks, ComeMoreSeldomUpToAQuarterOfTheTimeBetweenTrials) {
  WayChecks checks(100, 1'000, 200);
  EXPECT_EQ(checks.every(), 100u);
  EXPECT_FALSE(checks.ask(10, 10));
  EXPECT_EQ(checks.every(), 200u);
  EXPECT_FALSE(checks.ask(10, 10));
  EXPECT_FALSE(checks.ask(10, 10));
  EXPECT_EQ(checks.every(), 250u);
}

TEST(WayChecks, AskForTrialsWhereTheWayChangesOrAnotherIsBetter) {
  WayChecks checks(100, 1'000, 200);
  EXPECT_FALSE(checks.ask(20, 10));
  EXPECT_TRUE(checks.ask(21, 10));
  EXPECT_FALSE(checks.ask(10, 20));
  EXPECT_TRUE(checks.ask(10, 21));
  EXPECT_FALSE(checks.ask(15, 15, 10));
  EXPECT_TRUE(checks.ask(16, 16, 10));
  EXPECT_FALSE(checks.ask(16, 0)) << "what it took is not known";
}

TEST(StoreTrials, ComeSoonWhenPiecesTakeMuchLonger) {
  Ring ring;
  ring.carry(kEnough, {100ns, 100ns}, {100ns, 200ns});
  ASSERT_FALSE(ring.streams());
  ring.carry(kPiecesUntilCheck + kEnough, {200ns, 100ns}, {300ns, 200ns});
  EXPECT_TRUE(ring.streams());
}

TEST(StoreTrials, StayInTheCachesWhereTheReaderCopiesNothing) {
  Ring ring;
  ring.carry(kEnough, {1000ns, 100ns}, {0ns, 0ns});
  EXPECT_FALSE(ring.streams());
}

TEST(StoreTrials, AreApartBySize) {
  Ring ring;
  ring.carry(kEnough, {100ns, 100ns}, {1000ns, 100ns}, 2048);
  EXPECT_TRUE(ring.streams(2048));
  EXPECT_TRUE(ring.streams(4095));
  EXPECT_FALSE(ring.streams(4096));
  EXPECT_FALSE(ring.streams(2047));
  EXPECT_THAT(ring.carry(kEnough, {100ns, 100ns}, {1000ns, 100ns}, kTriedPieceMin - 1),
              Each(false));
}

TEST(StoreTrials, IgnoreATrialThatNoWriterMakes) {
  ReaderTimes told{};
  StoreTimer reader(&told);
  reader.note({PieceStores::kTrial}, 0, 5ns);
  reader.note({PieceStores::kAll}, kTriedPieceMin - 1, 5ns);
  for (const auto& of_size : told.of_size) EXPECT_EQ(of_size.trials, 0);
}

}  // namespace
}  // namespace unisono::shm
