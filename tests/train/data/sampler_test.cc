// Samplers: PyTorch's orders, every sample once, micro-batches that do not know how many ranks
// there are.
#include "unisono/train/sampler.h"

#include <gmock/gmock.h>
#include <zlib.h>

#include <map>
#include <numeric>
#include <set>
#include <string>

#include "tests/train/data/files.h"

namespace unisono::train::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Indices = std::vector<std::size_t>;

std::uint32_t digest(const Indices& indices) {
  const std::vector<std::uint32_t> words(indices.begin(), indices.end());
  return static_cast<std::uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(words.data()), static_cast<uInt>(4 * words.size())));
}

// The first two are what torch.manual_seed(s); torch.randperm(10) prints.
TEST(RandomPermutation, IsThatOfPyTorch) {
  EXPECT_THAT(random_permutation(10, 0), ElementsAre(4, 1, 7, 5, 3, 9, 0, 8, 6, 2));
  EXPECT_THAT(random_permutation(10, 42), ElementsAre(2, 6, 1, 8, 4, 5, 0, 9, 3, 7));
  EXPECT_THAT(random_permutation(4, 7), ElementsAre(3, 2, 0, 1));
  EXPECT_THAT(random_permutation(16, 123456789012),
              ElementsAre(13, 11, 9, 15, 2, 3, 14, 8, 4, 1, 5, 0, 6, 7, 12, 10));
  EXPECT_EQ(random_permutation(0, 3).size(), 0u);
  EXPECT_THAT(random_permutation(1, 3), ElementsAre(0));
}

// CRC-32 of the indices as little-endian 32-bit words, from a Mersenne twister written in Python.
TEST(RandomPermutation, OfManyIsTheSameEverywhere) {
  EXPECT_EQ(digest(random_permutation(1797, 0)), 0x7e8e2c3cu);
  EXPECT_EQ(digest(random_permutation(60000, 7)), 0xa5bd3a77u);
  EXPECT_EQ(digest(random_permutation(1000003, 12345)), 0x2f07d7afu);
}

TEST(DistributedSampler, GivesStoredShares) {
  const auto share = [](std::size_t samples, RankPlace place, std::uint64_t seed,
                        std::uint64_t epoch, bool drop_last) {
    DistributedSampler sampler(samples, place, {.seed = seed, .drop_last = drop_last});
    sampler.set_epoch(epoch);
    EXPECT_EQ(sampler.size(), sampler.indices().size());
    return sampler.indices();
  };
  EXPECT_THAT(share(10, {4, 0}, 0, 0, false), ElementsAre(4, 3, 6));
  EXPECT_THAT(share(10, {4, 1}, 0, 0, false), ElementsAre(1, 9, 2));
  EXPECT_THAT(share(10, {4, 2}, 0, 0, false), ElementsAre(7, 0, 4));
  EXPECT_THAT(share(10, {4, 3}, 0, 0, false), ElementsAre(5, 8, 1));
  EXPECT_THAT(share(10, {4, 0}, 0, 1, false), ElementsAre(5, 0, 7));
  EXPECT_THAT(share(10, {4, 3}, 0, 1, false), ElementsAre(2, 3, 6));
  EXPECT_THAT(share(10, {4, 0}, 5, 2, true), ElementsAre(5, 1));
  EXPECT_THAT(share(10, {4, 3}, 5, 2, true), ElementsAre(4, 6));
}

TEST(DistributedSampler, BeginsAnewWhereThereAreFewerSamplesThanRanks) {
  Indices given;
  for (int rank = 0; rank < 8; ++rank) {
    const DistributedSampler sampler(3, {8, rank}, {.shuffle = false});
    ASSERT_EQ(sampler.size(), 1u);
    given.push_back(sampler.indices()[0]);
  }
  EXPECT_THAT(given, ElementsAre(0, 1, 2, 0, 1, 2, 0, 1));
}

// Step by step as PyTorch's own code does it, lists and all.
Indices as_published(std::size_t length, std::size_t replicas, std::size_t rank, bool shuffle,
                     std::uint64_t seed, bool drop_last) {
  Indices list(length);
  std::iota(list.begin(), list.end(), std::size_t{0});
  if (shuffle) list = random_permutation(length, seed);
  const auto ceil_divided = [&](std::size_t a) { return (a + replicas - 1) / replicas; };
  std::size_t samples = ceil_divided(length);
  if (drop_last && length % replicas != 0) samples = ceil_divided(length - replicas);
  const std::size_t total = samples * replicas;
  if (!drop_last) {
    const std::size_t padding = total - length;
    Indices repeated;
    while (repeated.size() < padding) repeated.insert(repeated.end(), list.begin(), list.end());
    repeated.resize(padding);
    list.insert(list.end(), repeated.begin(), repeated.end());
  } else {
    list.resize(total);
  }
  Indices mine;
  for (std::size_t i = rank; i < total; i += replicas) mine.push_back(list[i]);
  return mine;
}

TEST(DistributedSampler, DoesWhatPyTorchsCodeDoes) {
  for (std::size_t length = 1; length <= 20; ++length) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      for (const bool shuffle : {false, true}) {
        for (const bool drop_last : {false, true}) {
          if (drop_last && length < static_cast<std::size_t>(ranks)) continue;
          for (int rank = 0; rank < ranks; ++rank) {
            DistributedSampler sampler(length, {ranks, rank},
                                       {.shuffle = shuffle, .seed = 3, .drop_last = drop_last});
            sampler.set_epoch(4);
            ASSERT_EQ(sampler.indices(),
                      as_published(length, static_cast<std::size_t>(ranks),
                                   static_cast<std::size_t>(rank), shuffle, 7, drop_last))
                << length << " samples, rank " << rank << " of " << ranks;
          }
        }
      }
    }
  }
}

TEST(DistributedSampler, RepeatsItsOrderUnlessToldTheEpoch) {
  DistributedSampler sampler(100, {2, 1});
  const Indices first = sampler.indices();
  EXPECT_EQ(sampler.indices(), first);
  sampler.set_epoch(1);
  EXPECT_NE(sampler.indices(), first);
  sampler.set_epoch(0);
  EXPECT_EQ(sampler.indices(), first);
}

TEST(DistributedSampler, RefusesToLeaveARankWithoutSamples) {
  const auto refusal = [](std::size_t samples, RankPlace place, bool drop_last) {
    return thrown_by<std::invalid_argument>(
        [&] { DistributedSampler(samples, place, {.drop_last = drop_last}); });
  };
  EXPECT_THAT(refusal(3, {8, 0}, true), HasSubstr("3 samples on 8 ranks leave none"));
  EXPECT_THAT(refusal(7, {8, 0}, true), HasSubstr("use at most 7 ranks"));
  EXPECT_EQ(refusal(8, {8, 0}, true), "nothing");
  EXPECT_EQ(refusal(3, {8, 0}, false), "nothing");
  EXPECT_THAT(refusal(0, {8, 0}, false), HasSubstr("no samples"));
  EXPECT_THAT(refusal(9, {8, 8}, false), HasSubstr("rank 8 of 8"));
  EXPECT_THAT(refusal(9, {0, 0}, false), HasSubstr("rank 0 of 0"));
}

TEST(EvaluationSampler, GivesEverySampleExactlyOnce) {
  for (std::size_t samples = 1; samples <= 20; ++samples) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      std::vector<int> seen(samples);
      for (int rank = 0; rank < ranks; ++rank) {
        const EvaluationSampler sampler(samples, {ranks, rank});
        const Indices mine = sampler.indices();
        ASSERT_EQ(mine.size(), sampler.size());
        for (std::size_t i = 0; i < mine.size(); ++i) {
          ASSERT_EQ(mine[i], static_cast<std::size_t>(rank) + i * static_cast<std::size_t>(ranks));
          ++seen[mine[i]];
        }
      }
      ASSERT_THAT(seen, testing::Each(1));
    }
  }
}

TEST(GlobalMicroBatchSampler, GivesTheSameMicroBatchesToAnyNumberOfRanks) {
  const auto all = [](int ranks, std::uint64_t epoch) {
    std::map<std::pair<std::size_t, std::size_t>, Indices> micro_batches;
    for (int rank = 0; rank < ranks; ++rank) {
      GlobalMicroBatchSampler sampler(1000, {ranks, rank}, {.micro_batch_samples = 7, .seed = 5});
      sampler.set_epoch(epoch);
      EXPECT_EQ(sampler.steps(), 17u);
      EXPECT_EQ(sampler.micro_batches_per_rank(), 8u / static_cast<std::size_t>(ranks));
      for (std::size_t step = 0; step < sampler.steps(); ++step) {
        std::size_t id = sampler.first_micro_batch();
        for (const MicroBatch& each : sampler.step(step)) {
          EXPECT_EQ(each.id, id++);
          EXPECT_TRUE(micro_batches.emplace(std::pair(step, each.id), each.indices).second);
        }
      }
    }
    return micro_batches;
  };
  for (const std::uint64_t epoch : {0u, 3u}) {
    const auto one = all(1, epoch);
    ASSERT_EQ(one.size(), 17u * 8u);
    for (const int ranks : {2, 4, 8}) EXPECT_EQ(all(ranks, epoch), one);
    std::set<std::size_t> samples;
    for (const auto& [place, indices] : one) samples.insert(indices.begin(), indices.end());
    EXPECT_EQ(samples.size(), 17u * 8u * 7u);
  }
  EXPECT_NE(all(1, 0), all(1, 1));
}

TEST(GlobalMicroBatchSampler, InBatchesIsItsStepsEndToEnd) {
  const GlobalMicroBatchSampler sampler(100, {2, 1}, {.micro_batch_samples = 3});
  const auto batches = cut_batches(sampler.indices(), 3);
  ASSERT_EQ(sampler.indices().size(), sampler.size());
  ASSERT_EQ(batches.size(), sampler.steps() * 4);
  for (std::size_t b = 0; b < batches.size(); ++b) {
    const MicroBatch micro_batch = sampler.step(b / 4)[b % 4];
    EXPECT_EQ(batches[b], micro_batch.indices);
    EXPECT_EQ(micro_batch.id, sampler.first_micro_batch() + b % 4);
  }
}

TEST(GlobalMicroBatchSampler, RefusesRanksThatDoNotDivide) {
  const auto refusal = [](std::size_t samples, int ranks, MicroBatchOptions options) {
    return thrown_by<std::invalid_argument>([&] {
      GlobalMicroBatchSampler(samples, {ranks, 0}, options);
    });
  };
  EXPECT_THAT(refusal(1000, 3, {}), HasSubstr("8 micro-batches cannot be dealt evenly to 3 ranks"));
  EXPECT_THAT(refusal(1000, 16, {}), HasSubstr("16 ranks"));
  EXPECT_EQ(refusal(1000, 3, {.micro_batches = 9}), "nothing");
  EXPECT_EQ(refusal(64, 8, {}), "nothing");
  EXPECT_THAT(refusal(63, 8, {}), HasSubstr("63 samples do not fill one step"));
  EXPECT_THAT(refusal(64, 1, {.micro_batches = 0}), HasSubstr("0 micro-batches"));
  EXPECT_THAT(refusal(64, 1, {.micro_batch_samples = 0}), HasSubstr("no samples"));
}

// Only lengths matter here.
class LengthsOnly : public Dataset {
 public:
  explicit LengthsOnly(Indices lengths) : lengths_(std::move(lengths)) {}
  std::size_t size() const override { return lengths_.size(); }
  int classes() const override { return 1; }
  Shape input_shape() const override { return {1}; }
  std::size_t targets_per_sample() const override { return 1; }
  void read(std::size_t, std::span<float>, std::span<std::int32_t>) const override {}
  std::size_t length(std::size_t index) const override { return lengths_.at(index); }
  std::string describe() const override { return "lengths"; }

 private:
  Indices lengths_;
};

TEST(SortedBatchSampler, GivesAllRanksTheSameLengthsInAStep) {
  Indices lengths(103);
  for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] = i * 37 % 50;
  const LengthsOnly data(lengths);
  std::vector<std::vector<Indices>> batches;  // by rank
  std::map<std::size_t, int> seen;
  for (int rank = 0; rank < 4; ++rank) {
    const SortedBatchSampler sampler(data, {4, rank}, {.batch_samples = 5});
    ASSERT_EQ(sampler.size(), 26u);
    batches.push_back(cut_batches(sampler.indices(), 5));
    for (const std::size_t index : sampler.indices()) ++seen[index];
  }
  EXPECT_EQ(seen.size(), 103u);
  ASSERT_EQ(batches[0].size(), 6u);
  // Sorted, twenty neighbours of 103 samples with 50 lengths span at most eleven of them.
  for (std::size_t b = 0; b < 6; ++b) {
    std::size_t least = 50, most = 0;
    for (const auto& rank : batches) {
      for (const std::size_t index : rank[b]) {
        least = std::min(least, lengths[index]);
        most = std::max(most, lengths[index]);
      }
    }
    EXPECT_LE(most - least, 10u);
  }
}

TEST(SortedBatchSampler, ShufflesWholeBatchesByEpoch) {
  Indices lengths(40);
  std::iota(lengths.begin(), lengths.end(), std::size_t{0});
  const LengthsOnly data(lengths);
  SortedBatchSampler sampler(data, {1, 0}, {.batch_samples = 4});
  auto first = cut_batches(sampler.indices(), 4);
  sampler.set_epoch(1);
  auto second = cut_batches(sampler.indices(), 4);
  EXPECT_NE(first, second);
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  EXPECT_EQ(first, second);
  EXPECT_THAT(first[0], ElementsAre(0, 1, 2, 3));
  const SortedBatchSampler plain(data, {1, 0}, {.batch_samples = 4, .shuffle = false});
  EXPECT_EQ(plain.indices(), lengths);
  EXPECT_THROW(SortedBatchSampler(data, {1, 0}, {.batch_samples = 0}), std::invalid_argument);
  EXPECT_THROW(SortedBatchSampler(data, {41, 0}, {.drop_last = true}), std::invalid_argument);
}

TEST(SortedBatchSampler, LeavesOutOthersInEveryEpoch) {
  Indices lengths(10);
  std::iota(lengths.begin(), lengths.end(), std::size_t{1});
  const LengthsOnly data(lengths);
  SortedBatchSampler alone(data, {1, 0}, {.batch_samples = 4, .drop_last = true});
  std::set<std::size_t> seen;
  for (std::uint64_t epoch = 0; epoch < 50; ++epoch) {
    alone.set_epoch(epoch);
    const auto batches = cut_batches(alone.indices(), 4, true);
    ASSERT_EQ(batches.size(), 2u);
    // The same ones on two ranks.
    std::vector<Indices> of_two(2);
    for (int rank = 0; rank < 2; ++rank) {
      SortedBatchSampler half(data, {2, rank}, {.batch_samples = 2, .drop_last = true});
      half.set_epoch(epoch);
      const auto halves = cut_batches(half.indices(), 2, true);
      ASSERT_EQ(halves.size(), 2u);
      for (std::size_t b = 0; b < 2; ++b) {
        of_two[b].insert(of_two[b].end(), halves[b].begin(), halves[b].end());
      }
    }
    for (std::size_t b = 0; b < 2; ++b) {
      EXPECT_THAT(of_two[b], testing::UnorderedElementsAreArray(batches[b])) << epoch;
      // Neighbours, but for the two that are left out.
      EXPECT_LE(std::ranges::max(batches[b]) - std::ranges::min(batches[b]), 5u) << epoch;
      seen.insert(batches[b].begin(), batches[b].end());
    }
  }
  EXPECT_EQ(seen.size(), 10u);
}

TEST(Batches, AreCutFromAnyOrder) {
  const Indices indices{5, 3, 8, 1, 9};
  EXPECT_THAT(cut_batches(indices, 2),
              ElementsAre(ElementsAre(5, 3), ElementsAre(8, 1), ElementsAre(9)));
  EXPECT_THAT(cut_batches(indices, 2, true), ElementsAre(ElementsAre(5, 3), ElementsAre(8, 1)));
  EXPECT_THAT(cut_batches(indices, 9), ElementsAre(indices));
  EXPECT_TRUE(cut_batches(indices, 9, true).empty());
  EXPECT_TRUE(cut_batches({}, 3).empty());
  EXPECT_THROW(cut_batches(indices, 0), std::invalid_argument);
}

}  // namespace
}  // namespace unisono::train::test
