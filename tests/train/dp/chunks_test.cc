// How batches are cut: the goldens of the published scatters, and invariants over small numbers.
#include <gmock/gmock.h>

#include <numeric>
#include <stdexcept>
#include <string>

#include "unisono/train/scatter_chunks.h"

namespace unisono::train {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;

std::size_t sum(const std::vector<std::size_t>& chunks) {
  return std::accumulate(chunks.begin(), chunks.end(), std::size_t{0});
}

TEST(EvenChunks, ArePiecesOfTheCeilingPerhapsFewerThanDevices) {
  EXPECT_THAT(even_chunks(5, 4), ElementsAre(2, 2, 1));
  EXPECT_THAT(even_chunks(6, 3), ElementsAre(2, 2, 2));
  EXPECT_THAT(even_chunks(6, 2), ElementsAre(3, 3));
  EXPECT_THAT(even_chunks(1, 8), ElementsAre(1));
  EXPECT_THAT(even_chunks(7, 1), ElementsAre(7));
  EXPECT_THAT(even_chunks(0, 3), IsEmpty());
  EXPECT_THROW(even_chunks(4, 0), std::invalid_argument);
}

TEST(BalancedChunks, AreThoseOfThePublishedScatter) {
  EXPECT_THAT(balanced_chunks(52, 16, 3), ElementsAre(16, 18, 18));
  EXPECT_THAT(balanced_chunks(53, 16, 3), ElementsAre(16, 19, 18));
  EXPECT_THAT(balanced_chunks(32, 14, 2), ElementsAre(14, 18));
  EXPECT_THAT(balanced_chunks(53, 0, 3), ElementsAre(0, 27, 26));
}

TEST(BalancedChunks, AreEvenWhereTheFirstIsNotBelowTheUnit) {
  EXPECT_THAT(balanced_chunks(52, 18, 3), ElementsAre(18, 18, 16)) << "the unit is 17";
  EXPECT_THAT(balanced_chunks(32, 16, 2), ElementsAre(16, 16));
  EXPECT_THAT(balanced_chunks(8, 9, 2), ElementsAre(4, 4)) << "more than there are";
  EXPECT_THAT(balanced_chunks(8, 3, 1), ElementsAre(8));
  EXPECT_THAT(balanced_chunks(2, 0, 4), ElementsAre(0, 1, 1)) << "the first stays out";
}

TEST(Chunks, ServeEverySampleOnceWhateverTheNumbers) {
  for (std::size_t samples = 0; samples <= 40; ++samples) {
    for (std::size_t devices = 1; devices <= 9; ++devices) {
      EXPECT_EQ(sum(even_chunks(samples, devices)), samples);
      EXPECT_LE(even_chunks(samples, devices).size(), devices);
      for (std::size_t first = 0; first <= samples + 1; ++first) {
        const auto chunks = balanced_chunks(samples, first, devices);
        EXPECT_EQ(sum(chunks), samples) << samples << ' ' << first << ' ' << devices;
        EXPECT_LE(chunks.size(), devices);
        for (std::size_t i = 1; i < chunks.size(); ++i) EXPECT_GT(chunks[i], 0U);
      }
    }
  }
}

TEST(CheckBalanced, RefusesASingleDeviceAndAFirstBatchAboveTheBatch) {
  EXPECT_THAT(check_balanced(32, 4, 1).refusal, HasSubstr("at least 2 devices"));
  EXPECT_THAT(check_balanced(32, 4, 0).refusal, HasSubstr("at least 2 devices"));
  const BalancedCheck above = check_balanced(32, 33, 2);
  EXPECT_THAT(above.refusal, HasSubstr("33 is larger than the batch of 32"));
  EXPECT_THAT(above.chunks, IsEmpty());
}

TEST(CheckBalanced, SaysThatChunksAreEvenInstead) {
  const BalancedCheck check = check_balanced(32, 20, 2);
  EXPECT_EQ(check.refusal, "");
  EXPECT_THAT(check.chunks, ElementsAre(16, 16));
  EXPECT_THAT(check.notes, ElementsAre(HasSubstr("even chunks instead, 16, 16")));
}

// What the words name as the most is taken as it is, and one more falls back.
TEST(CheckBalanced, NamesABoundThatHolds) {
  for (std::size_t devices = 2; devices <= 5; ++devices) {
    for (std::size_t samples = 2 * devices; samples <= 40; ++samples) {
      const std::string refusal = check_balanced(samples, samples + 1, devices).refusal;
      const std::size_t most = std::stoul(refusal.substr(refusal.rfind(' ') + 1));
      EXPECT_EQ(check_balanced(samples, most, devices).chunks.front(), most) << refusal;
      const BalancedCheck above = check_balanced(samples, most + 1, devices);
      EXPECT_THAT(above.notes, ElementsAre(AllOf(HasSubstr("even chunks instead"),
                                                 EndsWith("at most " + std::to_string(most)))));
    }
  }
}

TEST(CheckBalanced, WarnsOfTheRemaindersMemory) {
  EXPECT_THAT(check_balanced(53, 16, 3).notes, ElementsAre(HasSubstr("19 samples")));
  EXPECT_THAT(check_balanced(52, 16, 3).notes, IsEmpty());
}

}  // namespace
}  // namespace unisono::train
