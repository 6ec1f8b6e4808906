// How the blocks of a launch share what one of them read of the abort word.
#include "cuda/kernels/abort_answer.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

namespace unisono::cuda {
namespace {

struct AbortAnswer : ::testing::Test {
  bool ask(std::uint64_t launch, bool word) {
    return ask_once(lines_.data(), launch, [&] {
      ++reads_;
      return word;
    });
  }

  std::array<AnswerLine, kAnswerLines> lines_{};
  int reads_ = 0;
};

TEST_F(AbortAnswer, IsReadByTheFirstBlockAlone) {
  for (const bool word : {false, true}) {
    const std::uint64_t launch = word ? 2 : 1;
    reads_ = 0;
    EXPECT_EQ(ask(launch, word), word);
    for (int block = 1; block < 100; ++block) EXPECT_EQ(ask(launch, !word), word);
    EXPECT_EQ(reads_, 1);
  }
}

TEST_F(AbortAnswer, IsOfOneLaunch) {
  EXPECT_FALSE(ask(1, false));
  EXPECT_TRUE(ask(1 + kAnswerLines, true));
  EXPECT_TRUE(ask(1, true)) << "the line is another launch's now";
  EXPECT_EQ(reads_, 3);
}

TEST_F(AbortAnswer, IsLostWhereAnotherLaunchTakesTheLineMeanwhile) {
  const bool answer = ask_once(lines_.data(), 1, [&] {
    EXPECT_TRUE(ask(1 + kAnswerLines, true));
    return false;
  });
  EXPECT_FALSE(answer);
  EXPECT_TRUE(ask(1 + kAnswerLines, false)) << "its answer is still there";
  EXPECT_EQ(reads_, 1);
}

TEST_F(AbortAnswer, IsNotWaitedForForEver) {
  lines_[1].value = answer_of(1, Answer::kAsked);
  EXPECT_TRUE(ask(1, true));
  EXPECT_FALSE(ask(1, false));
  EXPECT_EQ(reads_, 2);
}

// Two captured launches of one graph, of which one is called off in every second replay.
TEST_F(AbortAnswer, IsReadOnceInEachReplay) {
  constexpr std::uint32_t kBlocks = 24;
  std::array<BlockCounter, 2> counters{};
  for (int replay = 0; replay < 300; ++replay) {
    for (const std::uint32_t counter : {1U, 2U}) {
      const bool word = (replay + static_cast<int>(counter)) % 2 == 0;
      reads_ = 0;
      for (std::uint32_t block = 0; block < kBlocks; ++block) {
        EXPECT_EQ(ask_once_in_replay(lines_.data(), counters.data(), counter, kBlocks,
                                     [&] {
                                       ++reads_;
                                       return word;
                                     }),
                  word);
      }
      EXPECT_EQ(reads_, 1);
    }
  }
}

TEST_F(AbortAnswer, IsRightInReplaysWhoseBlocksRunBesideEachOther) {
  constexpr std::uint32_t kBlocks = 8;
  BlockCounter counter = 0;
  std::atomic<int> wrong = 0;
  for (int replay = 0; replay < 300; ++replay) {
    const bool word = replay % 2 == 0;
    std::vector<std::thread> blocks;
    for (std::uint32_t block = 0; block < kBlocks; ++block) {
      blocks.emplace_back([&] {
        if (ask_once_in_replay(lines_.data(), &counter, 1, kBlocks, [&] { return word; }) != word) {
          ++wrong;
        }
      });
    }
    for (std::thread& thread : blocks) thread.join();
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(counter, 300u * kBlocks);
}

TEST_F(AbortAnswer, OfAReplayIsNoPlainLaunchs) {
  std::array<BlockCounter, 1> counters{};
  EXPECT_TRUE(ask(1, true));
  EXPECT_FALSE(ask_once_in_replay(lines_.data(), counters.data(), 1, 1, [] { return false; }));
  EXPECT_TRUE(ask_once_in_replay(lines_.data(), counters.data(), 1, 1, [] { return true; }));
  EXPECT_NE(number_of_replay(1, 1), number_of_replay(2, 1));
  EXPECT_EQ(number_of_replay(kBlockCounters, 7) << 2 >> 2, number_of_replay(kBlockCounters, 7))
      << "an answer has two bits more";
}

TEST_F(AbortAnswer, IsRightForLaunchesBesideEachOther) {
  constexpr std::uint64_t kLaunches = 5000;
  std::atomic<int> wrong = 0;
  const auto block = [&] {
    for (std::uint64_t launch = 1; launch <= kLaunches; ++launch) {
      // Two that share a line.
      for (const std::uint64_t asked : {launch, launch + kAnswerLines}) {
        const bool word = asked % 3 == 0;
        if (ask_once(lines_.data(), asked, [&] { return word; }) != word) ++wrong;
      }
    }
  };
  std::vector<std::thread> blocks;
  for (int i = 0; i < 8; ++i) blocks.emplace_back(block);
  for (std::thread& thread : blocks) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace unisono::cuda
