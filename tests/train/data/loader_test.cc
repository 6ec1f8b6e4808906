// The prefetching loader: order, bounds, failures, and leaving early.
#include "unisono/train/loader.h"

#include <gmock/gmock.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

#include "engine/idle.h"
#include "tests/train/data/files.h"

namespace unisono::train::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Indices = std::vector<std::size_t>;

// Sample i is the number i. Counts what was read; can hold readers up and fail.
class SlowNumbers : public Dataset {
 public:
  explicit SlowNumbers(std::size_t size) : size_(size) {}
  std::size_t size() const override { return size_; }
  int classes() const override { return 1; }
  Shape input_shape() const override { return {1}; }
  std::size_t targets_per_sample() const override { return 1; }
  void read(std::size_t index, std::span<float> input,
            std::span<std::int32_t> targets) const override {
    std::unique_lock lock(mutex_);
    ++reads_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return index != held_back_; });
    if (index == failing) throw std::runtime_error("sample " + std::to_string(index) + " burnt");
    input[0] = static_cast<float>(index);
    targets[0] = 0;
  }
  std::size_t length(std::size_t) const override { return 1; }
  std::string describe() const override { return "numbers"; }

  void hold_back(std::size_t index) {
    const std::lock_guard lock(mutex_);
    held_back_ = index;
    changed_.notify_all();
  }
  void wait_for_reads(std::size_t count) const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reads_ >= count; });
  }
  std::size_t reads() const {
    const std::lock_guard lock(mutex_);
    return reads_;
  }

  std::size_t failing = ~std::size_t{0};

 private:
  std::size_t size_;
  std::size_t held_back_ = ~std::size_t{0};
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable std::size_t reads_ = 0;
};

std::vector<Indices> batches_of(Loader& loader) {
  std::vector<Indices> all;
  while (const std::optional<Batch> batch = loader.next()) {
    for (std::size_t i = 0; i < batch->samples(); ++i) {
      EXPECT_EQ(batch->inputs.values()[i], static_cast<float>(batch->indices[i]));
    }
    all.push_back(batch->indices);
  }
  return all;
}

std::set<std::string> threads_of_this_process() {
  std::set<std::string> threads;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    threads.insert(entry.path().filename());
  }
  return threads;
}

// How many there are beside `known` ones once it is `expected`. The kernel lists a joined thread
// until it has put it away, so such a one may be among the known and may be among the others.
std::size_t threads_when_settled(const std::set<std::string>& known, std::size_t expected) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (;;) {
    std::set<std::string> others = threads_of_this_process();
    std::erase_if(others, [&](const std::string& thread) { return known.contains(thread); });
    if (others.size() == expected || std::chrono::steady_clock::now() > deadline) {
      return others.size();
    }
    std::this_thread::yield();
  }
}

class Workers : public testing::TestWithParam<int> {};

TEST_P(Workers, GiveTheBatchesOfAnEpochInOrder) {
  SlowNumbers data(103);
  Indices order(103);
  std::iota(order.begin(), order.end(), std::size_t{0});
  Loader loader(data, {.batch_samples = 10, .workers = GetParam()});
  EXPECT_EQ(loader.batches(), 11u);
  EXPECT_FALSE(loader.next().has_value()) << "an epoch has not begun";
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    loader.begin(epoch);
    EXPECT_EQ(batches_of(loader), cut_batches(order, 10));
    EXPECT_FALSE(loader.next().has_value());
  }
  loader.begin(0, 9);
  EXPECT_THAT(batches_of(loader), ElementsAre(Indices(order.begin() + 90, order.begin() + 100),
                                              Indices{100, 101, 102}));
  loader.begin(0, 11);
  EXPECT_TRUE(batches_of(loader).empty());
}

TEST_P(Workers, AreCountedWhileAnEpochHasThem) {
  const int before = ProcessThreads::count();
  SlowNumbers data(20);
  Loader loader(data, {.batch_samples = 10, .workers = GetParam()});
  EXPECT_EQ(ProcessThreads::count(), before);
  loader.begin(0);
  EXPECT_EQ(ProcessThreads::count(), before + GetParam());
  batches_of(loader);
  EXPECT_EQ(ProcessThreads::count(), before);
}

TEST_P(Workers, FollowTheSamplerAndItsEpochs) {
  SlowNumbers data(50);
  DistributedSampler sampler(50, {4, 2});
  Loader loader(data, sampler, {.batch_samples = 5, .drop_last = true, .workers = GetParam()});
  EXPECT_EQ(loader.batches(), 2u);
  for (const std::uint64_t epoch : {0u, 4u}) {
    loader.begin(epoch);
    DistributedSampler other(50, {4, 2});
    other.set_epoch(epoch);
    EXPECT_EQ(batches_of(loader), cut_batches(other.indices(), 5, true));
  }
}

TEST_P(Workers, ShuffleBySeedAndEpoch) {
  SlowNumbers data(50);
  Loader loader(data, {.batch_samples = 50, .shuffle = true, .seed = 3, .workers = GetParam()});
  loader.begin(4);
  EXPECT_THAT(batches_of(loader), ElementsAre(random_permutation(50, 7)));
}

TEST_P(Workers, HandTheFailureOfABatchToTheConsumerInItsPlace) {
  SlowNumbers data(100);
  data.failing = 35;
  Loader loader(data, {.batch_samples = 10, .workers = GetParam()});
  loader.begin(0);
  for (int batch = 0; batch < 3; ++batch) ASSERT_TRUE(loader.next().has_value());
  EXPECT_THAT(thrown_by([&] { loader.next(); }), HasSubstr("sample 35 burnt"));
  const std::optional<Batch> after = loader.next();
  ASSERT_TRUE(after.has_value());
  EXPECT_EQ(after->indices[0], 40u);
}

TEST_P(Workers, AreGoneWhenTheConsumerLeavesEarly) {
  std::thread([] {}).join();  // a sanitizer starts its own thread with the first one
  const std::set<std::string> before = threads_of_this_process();
  const auto workers = static_cast<std::size_t>(GetParam());
  SlowNumbers data(1000);
  for (int taken = 0; taken < 5; ++taken) {
    Loader loader(data, {.batch_samples = 10, .workers = GetParam()});
    loader.begin(0);
    for (int i = 0; i < taken; ++i) ASSERT_TRUE(loader.next().has_value());
  }
  ASSERT_EQ(threads_when_settled(before, 0), 0u);
  // And so are those of an epoch that another follows.
  Loader loader(data, {.batch_samples = 10, .workers = GetParam()});
  for (std::uint64_t epoch = 0; epoch < 20; ++epoch) {
    loader.begin(epoch);
    ASSERT_TRUE(loader.next().has_value());
    ASSERT_EQ(threads_when_settled(before, workers), workers);
  }
}

INSTANTIATE_TEST_SUITE_P(NoneToMany, Workers, testing::Values(0, 1, 3, 8));

TEST(Prefetching, IsNeverFurtherAheadThanItsBound) {
  SlowNumbers data(1000);
  Loader loader(data, {.batch_samples = 1, .workers = 2, .ahead = 3});
  loader.begin(0);
  for (std::size_t taken = 0; taken < 20; ++taken) {
    // All that may be made ahead is made, and nothing more: it would have been read by then.
    data.wait_for_reads(taken + 6);
    EXPECT_EQ(data.reads(), taken + 6);
    ASSERT_TRUE(loader.next().has_value());
  }
}

TEST(Prefetching, WaitsForTheBatchWhoseTurnItIs) {
  SlowNumbers data(100);
  data.hold_back(0);
  Loader loader(data, {.batch_samples = 1, .workers = 3, .ahead = 2});
  loader.begin(0);
  // The other two have filled the ring while the first hangs.
  data.wait_for_reads(6);
  std::thread release([&] { data.hold_back(~std::size_t{0}); });
  EXPECT_EQ(loader.next()->indices, Indices{0});
  release.join();
  EXPECT_EQ(loader.next()->indices, Indices{1});
}

TEST(LoaderOptions, ThatContradictAreRefused) {
  SlowNumbers data(10);
  DistributedSampler sampler(10, {});
  EXPECT_THAT(thrown_by<std::invalid_argument>([&] { Loader(data, sampler, {.shuffle = true}); }),
              HasSubstr("a sampler decides the order"));
  EXPECT_THAT(thrown_by<std::invalid_argument>([&] { Loader(data, {.batch_samples = 0}); }),
              HasSubstr("a batch of no samples"));
  EXPECT_THROW(Loader(data, {.workers = -1}), std::invalid_argument);
  EXPECT_THROW(Loader(data, {.ahead = 0}), std::invalid_argument);
}

TEST(Loader, OfAnEmptyDataSetGivesNothing) {
  SlowNumbers data(0);
  Loader loader(data, {.workers = 2});
  EXPECT_EQ(loader.batches(), 0u);
  loader.begin(0);
  EXPECT_FALSE(loader.next().has_value());
}

}  // namespace
}  // namespace unisono::train::test
