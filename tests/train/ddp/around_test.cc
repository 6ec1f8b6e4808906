// What surrounds a step: the learning rate's schedule, losses, batch norms' exchange.
#include <gmock/gmock.h>

#include <cmath>

#include "tests/train/ddp/ddp_world.h"
#include "unisono/train/models.h"
#include "unisono/train/schedule.h"
#include "unisono/train/sync_batch_norm.h"
#include "unisono/train/zero.h"

namespace unisono::test {
namespace {

using train::LearningRateSchedule;
using train::RateScaling;
using train::ScheduleOptions;

TEST(LearningRate, FollowsTheBatchLinearlyOrByItsSquareRoot) {
  ScheduleOptions options{.base_rate = 0.1F, .base_batch = 32, .global_batch = 128};
  EXPECT_FLOAT_EQ(LearningRateSchedule(options).at(0), 0.1F);
  options.scaling = RateScaling::kLinear;
  EXPECT_FLOAT_EQ(LearningRateSchedule(options).at(0), 0.4F);
  options.scaling = RateScaling::kSquareRoot;
  EXPECT_FLOAT_EQ(LearningRateSchedule(options).at(0), 0.2F);
}

TEST(LearningRate, WarmsUpFromTheBaseInAStraightLine) {
  const LearningRateSchedule schedule({.base_rate = 0.1F,
                                       .scaling = RateScaling::kLinear,
                                       .base_batch = 8,
                                       .global_batch = 64,
                                       .warm_up_steps = 7});
  for (std::size_t step = 0; step < 7; ++step) {
    EXPECT_FLOAT_EQ(schedule.at(step), 0.1F + 0.1F * static_cast<float>(step));
  }
  EXPECT_FLOAT_EQ(schedule.at(7), 0.8F);
  EXPECT_FLOAT_EQ(schedule.at(1'000'000), 0.8F);
  EXPECT_FLOAT_EQ(schedule.scaled(), 0.8F);
}

TEST(LearningRate, RefusesWhatIsNoRateOrNoBatch) {
  for (const float rate : {0.0F, -1.0F, NAN, INFINITY}) {
    EXPECT_THROW(LearningRateSchedule({.base_rate = rate}), std::invalid_argument) << rate;
  }
  EXPECT_THROW(LearningRateSchedule({.base_batch = 0}), std::invalid_argument);
  EXPECT_THROW(LearningRateSchedule({.global_batch = 0}), std::invalid_argument);
}

TEST(Loss, IsTheMeanOverRanksAndASingleRankMakesNoCall) {
  for (const int ranks : {1, 2, 4}) {
    run_ranks(ranks, "shm", [](Communicator& comm) {
      require(train::mean_loss(comm, comm.rank() * 2.0) == comm.size() - 1.0, "the mean");
      std::uint64_t calls = 0;
      for (const std::uint64_t n : comm.traffic().calls) calls += n;
      require(calls == (comm.size() == 1 ? 0u : 1u), std::to_string(calls) + " calls");
    });
  }
}

TEST(Loss, RunsAsAMean) {
  train::RunningMean mean;
  EXPECT_EQ(mean.value(), 0.0);
  for (const double loss : {4.0, 2.0, 0.0, 6.0}) mean.add(loss);
  EXPECT_EQ(mean.value(), 3.0);
  EXPECT_EQ(mean.steps(), 4u);
}

TEST(SyncBatchNorm, ExchangesApartFromTheCommunicatorsOtherCalls) {
  for (const char* transport : {"shm", "tcp"}) {
    run_ranks(3, transport, [](Communicator& comm) {
      train::SyncBatchNormExchange exchange(comm);
      require(exchange.ranks() == 3, "ranks");
      // A reduction is under way, started at another moment on each rank.
      std::vector<float> bucket(50'000, 1.0F);
      Request pending;
      if (comm.rank() == 0) pending = comm.all_reduce_async(bucket, ops::sum);
      const std::vector<float> mine(5, static_cast<float>(comm.rank()));
      std::vector<float> all(15);
      exchange.all_gather(mine, all);
      if (comm.rank() == 1) pending = comm.all_reduce_async(bucket, ops::sum);
      std::vector<float> total(5, static_cast<float>(comm.rank() + 1));
      exchange.all_reduce_sum(total);
      if (comm.rank() == 2) pending = comm.all_reduce_async(bucket, ops::sum);
      for (std::size_t i = 0; i < all.size(); ++i) {
        require(all[i] == static_cast<float>(i / 5), "gathered");
      }
      require(total == std::vector<float>(5, 6.0F), "summed");
      pending.wait();
      require(bucket == std::vector<float>(50'000, 3.0F), "the bucket");
    });
  }
}

// Rows first .. first + count - 1 of pictures of noise.
train::Batch pictures(std::uint64_t step, std::size_t first, std::size_t count) {
  train::Batch batch = toy_batch(step, first, count, 64);
  for (std::int32_t& target : batch.targets) target = target > 0 ? 1 : 0;
  return batch;
}

double loss_of(const train::Tensor& outputs, std::span<const std::int32_t> targets,
               train::Tensor* gradient, float scale) {
  return train::cross_entropy(outputs, targets, gradient, scale);
}

constexpr std::size_t kRows = 12;
constexpr int kSteps = 5;
constexpr float kRate = 0.05F;

std::unique_ptr<train::Model> make_small_cnn() {
  return train::make_cnn({.channels = 1, .size = 8, .filters = {4, 8}, .classes = 2});
}

/// A step of one strategy on this rank's batch.
using Step = std::function<void(const train::Batch&, const train::Pass&)>;
using MakeStep = std::function<Step(train::Model&, Communicator&)>;

Step ddp_step(train::Model& model, Communicator& comm) {
  auto ddp = std::make_shared<train::DistributedDataParallel>(
      model, comm, train::DdpOptions{.bucket_bytes_max = 64});
  return [ddp, optimizer = std::shared_ptr<train::Optimizer>(plain_sgd(model))](
             const train::Batch& batch, const train::Pass& pass) {
    ddp->step(batch, loss_of, *optimizer, kRate, pass);
  };
}

Step zero_step(train::Model& model, Communicator& comm) {
  const auto make = [](std::size_t count) { return train::make_sgd(count, {.momentum = 0.0F}); };
  auto zero = std::make_shared<train::ZeroOptimizer>(model, comm, make);
  return [zero](const train::Batch& batch, const train::Pass& pass) {
    zero->step(batch, loss_of, kRate, pass);
  };
}

class SyncBatchNormOf : public testing::TestWithParam<std::pair<const char*, MakeStep>> {};
INSTANTIATE_TEST_SUITE_P(Strategies, SyncBatchNormOf,
                         testing::Values(std::pair{"ddp", MakeStep(ddp_step)},
                                         std::pair{"zero1", MakeStep(zero_step)}),
                         [](const auto& info) { return std::string(info.param.first); });

TEST_P(SyncBatchNormOf, MakesRanksTrainAsOneOnTheGlobalBatch) {
  const auto alone = make_small_cnn();
  run_ranks(1, "shm", [&](Communicator& comm) {
    const Step step = ddp_step(*alone, comm);
    for (std::uint64_t s = 0; s < kSteps; ++s) step(pictures(s, 0, kRows), {});
  });
  for (const bool synchronised : {true, false}) {
    run_ranks(3, "shm", [&](Communicator& comm) {
      const auto model = make_small_cnn();
      require(train::convert_sync_batch_norm(*model) == 2, "batch norms");
      train::SyncBatchNormExchange exchange(comm);
      const Step step = GetParam().second(*model, comm);
      const auto first = static_cast<std::size_t>(comm.rank()) * kRows / 3;
      for (std::uint64_t s = 0; s < kSteps; ++s) {
        train::Pass pass;
        if (synchronised) pass.statistics = &exchange;
        step(pictures(s, first, kRows / 3), pass);
      }
      const auto compare = [&] {
        require_near(model->parameters().values(), alone->parameters().values(), 1e-3F,
                     "parameters");
        require_near(model->buffers().values(), alone->buffers().values(), 1e-3F, "buffers");
      };
      if (synchronised) {
        compare();
      } else {
        require(thrown_by(compare) != "", "the statistics make no difference");
      }
    });
  }
}

}  // namespace
}  // namespace unisono::test
