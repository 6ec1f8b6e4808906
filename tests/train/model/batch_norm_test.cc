// Batch norm against sums in double precision, and SyncBatchNorm against one big batch.
#include <gmock/gmock.h>

#include <barrier>
#include <thread>

#include "tests/train/model/layer_bench.h"
#include "unisono/train/models.h"

namespace unisono::train {
namespace {

const Image kImage{3, 2, 2};

TEST(BatchNorm, EqualsADirectComputation) {
  LayerBench bench(make_batch_norm(kImage));
  const Tensor input = random_tensor({5, 12}, 1, 3);
  const Tensor output = bench.forward(input);
  for (std::size_t c = 0; c < 3; ++c) {
    double sum = 0, squares = 0;
    const auto value = [&](std::size_t i) {  // i-th of the channel's 20
      return static_cast<double>(input.data()[i / 4 * 12 + c * 4 + i % 4]);
    };
    for (std::size_t i = 0; i < 20; ++i) sum += value(i);
    for (std::size_t i = 0; i < 20; ++i) squares += (value(i) - sum / 20) * (value(i) - sum / 20);
    for (std::size_t i = 0; i < 20; ++i) {
      const double expected = (value(i) - sum / 20) / std::sqrt(squares / 20 + 1e-5) *
                                  static_cast<double>(bench.parameters[0][c]) +
                              static_cast<double>(bench.parameters[1][c]);
      EXPECT_NEAR(static_cast<double>(output.data()[i / 4 * 12 + c * 4 + i % 4]), expected, 1e-5);
    }
    EXPECT_NEAR(bench.buffers[0][c], 0.1 * sum / 20, 1e-6);
    EXPECT_NEAR(bench.buffers[1][c], 0.9 + 0.1 * squares / 19, 1e-5) << "unbiased";
  }
}

TEST(BatchNorm, UsesRunningStatisticsOutsideTraining) {
  LayerBench bench(make_batch_norm({1, 1, 1}));
  bench.pass.training = false;
  bench.parameters[0][0] = 2;
  bench.parameters[1][0] = 1;
  bench.buffers[0][0] = 3;
  bench.buffers[1][0] = 4;
  Tensor input({1, 1});
  input.data()[0] = 7;
  EXPECT_NEAR(bench.forward(input).data()[0], (7 - 3) / 2.0 * 2 + 1, 1e-5);
  EXPECT_EQ(bench.buffers[0][0], 3);
}

TEST(BatchNorm, LeavesBuffersAloneWhenAskedTo) {
  LayerBench bench(make_batch_norm(kImage));
  bench.pass.update_buffers = false;
  bench.forward(random_tensor({5, 12}, 1));
  EXPECT_THAT(bench.buffers[0], ::testing::Each(0.0F));
  EXPECT_THAT(bench.buffers[1], ::testing::Each(1.0F));
}

TEST(BatchNorm, OfOneValueIsTheBias) {
  LayerBench bench(make_batch_norm({2, 1, 1}));
  const Tensor output = bench.forward(random_tensor({1, 2}, 1));
  EXPECT_EQ(output.data()[0], bench.parameters[1][0]);
  EXPECT_TRUE(std::isfinite(bench.buffers[1][0]));
}

/// What threads that are ranks exchange, through memory.
class ExchangeOfThreads {
 public:
  explicit ExchangeOfThreads(int ranks)
      : ranks_(ranks), given_(static_cast<std::size_t>(ranks)), all_(ranks) {}

  class Rank final : public StatisticsExchange {
   public:
    Rank(ExchangeOfThreads& threads, std::size_t rank) : threads_(threads), rank_(rank) {}
    int ranks() const override { return threads_.ranks_; }
    void all_gather(std::span<const float> mine, std::span<float> all) override {
      ++calls;
      sizes.push_back(mine.size());
      threads_.given_[rank_].assign(mine.begin(), mine.end());
      threads_.all_.arrive_and_wait();
      auto target = all.begin();
      for (const auto& part : threads_.given_) target = std::copy(part.begin(), part.end(), target);
      threads_.all_.arrive_and_wait();
    }
    Status status() const override { return {}; }
    void abort(const std::string&, unisono::Rank) override {}
    void all_reduce_sum(std::span<float> values) override {
      std::vector<float> all(values.size() * threads_.given_.size());
      all_gather(values, all);
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = 0;
        for (std::size_t r = 0; r < threads_.given_.size(); ++r) {
          values[i] += all[r * values.size() + i];
        }
      }
    }
    int calls = 0;
    std::vector<std::size_t> sizes;

   private:
    ExchangeOfThreads& threads_;
    std::size_t rank_;
  };

 private:
  int ranks_;
  std::vector<std::vector<float>> given_;
  std::barrier<> all_;
};

Tensor rows(const Tensor& all, std::size_t first, std::size_t count) {
  Tensor part({count, all.row_size()});
  std::copy_n(all.data() + first * all.row_size(), part.size(), part.data());
  return part;
}

void expect_near(std::span<const float> measured, std::span<const float> expected) {
  ASSERT_EQ(measured.size(), expected.size());
  for (std::size_t i = 0; i < measured.size(); ++i) EXPECT_NEAR(measured[i], expected[i], 2e-5);
}

TEST(SyncBatchNorm, OverRanksOfUnequalAndEmptyBatchesEqualsOneBatch) {
  const std::size_t first[] = {0, 4, 4, 5}, count[] = {4, 0, 1, 6};
  Tensor input = random_tensor({11, 12}, 2, 3);
  for (std::size_t i = 0; i < 4 * 12; ++i) input.data()[i] += 5;  // means differ by rank
  const Tensor gradient = random_tensor({11, 12}, 3);
  LayerBench whole(make_batch_norm(kImage));
  Saved saved;
  const Tensor output = whole.forward(input, &saved);
  const Tensor input_gradient = whole.backward(input, gradient, saved);

  ExchangeOfThreads all(4);
  std::vector<LayerBench> benches;
  for (int r = 0; r < 4; ++r) benches.emplace_back(make_batch_norm(kImage));
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < 4; ++r) {
    threads.emplace_back([&, r] {
      ExchangeOfThreads::Rank exchange(all, r);
      benches[r].pass.statistics = &exchange;
      const Tensor mine = rows(input, first[r], count[r]);
      Saved kept;
      const Tensor y = benches[r].forward(mine, &kept);
      expect_near(y.values(), rows(output, first[r], count[r]).values());
      const Tensor dx = benches[r].backward(mine, rows(gradient, first[r], count[r]), kept);
      expect_near(dx.values(), rows(input_gradient, first[r], count[r]).values());
      // 2 C + 1 numbers forward, two sums per channel backward, with rows or without.
      EXPECT_THAT(exchange.sizes, ::testing::ElementsAre(7, 6));
    });
  }
  for (auto& thread : threads) thread.join();
  std::vector<float> sum(whole.gradients.values().size());
  for (auto& bench : benches) {
    expect_near(bench.buffers.values(), whole.buffers.values());
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += bench.gradients.values()[i];
  }
  expect_near(sum, whole.gradients.values());
}

TEST(SyncBatchNorm, OfNoRowsAnywhereMovesNothing) {
  ExchangeOfThreads all(1);
  ExchangeOfThreads::Rank exchange(all, 0);
  LayerBench bench(make_batch_norm(kImage));
  bench.pass.statistics = &exchange;
  Saved saved;
  const Tensor output = bench.forward(Tensor({0, 12}), &saved);
  bench.backward(Tensor({0, 12}), output, saved);
  EXPECT_EQ(exchange.calls, 2);
  EXPECT_THAT(bench.buffers[1], ::testing::Each(1.0F));
  EXPECT_THAT(bench.gradients.values(), ::testing::Each(0.0F));
}

TEST(SyncBatchNorm, IsUsedByConvertedModelsAndTheirReplicasOnly) {
  ExchangeOfThreads all(1);
  ExchangeOfThreads::Rank exchange(all, 0);
  const auto model = make_cnn({.size = 8, .filters = {2, 3}, .classes = 2});
  const Tensor input = random_tensor({2, 64}, 1);
  Pass pass;
  pass.statistics = &exchange;
  model->forward(input, pass);
  EXPECT_EQ(exchange.calls, 0);
  EXPECT_EQ(convert_sync_batch_norm(*model), 2U);
  model->forward(input, pass);
  EXPECT_EQ(exchange.calls, 2);
  model->clone()->forward(input, pass);
  EXPECT_EQ(exchange.calls, 4);
  const auto plain = make_mlp({.widths = {2, 2}});
  EXPECT_EQ(convert_sync_batch_norm(*plain), 0U);
}

}  // namespace
}  // namespace unisono::train
