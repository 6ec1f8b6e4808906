// DataParallel against training on one device: every strategy, output device and uneven batch; and
// what a step does besides: buffers, accumulation, failures, threads.
#include "unisono/train/data_parallel.h"

#include <gmock/gmock.h>

#include <map>
#include <stdexcept>

#include "tests/train/dp/toy_models.h"

namespace unisono::train {
namespace {

using testing::ElementsAre;
using testing::FloatNear;
using testing::HasSubstr;
using testing::Pointwise;

DataParallelOptions options_of(int devices) {
  DataParallelOptions options;
  options.devices = device_list(devices);
  options.loss = half_squares;
  return options;
}

struct Trained {
  std::vector<float> parameters;
  std::vector<double> losses;
};

Trained train(DataParallelOptions options, std::size_t samples, int steps = 3) {
  DataParallel trainer(std::make_unique<ToyLinear>(3, 2), plain_sgd(), std::move(options));
  Trained trained;
  for (int step = 0; step < steps; ++step) {
    const Batch batch = integer_batch(samples, 3, static_cast<std::uint32_t>(step + 1));
    trained.losses.push_back(trainer.step(batch, 0.5F));
  }
  trained.parameters = parameters_of(trainer.model());
  return trained;
}

std::map<std::string, DataParallelOptions> strategies(int devices) {
  std::map<std::string, DataParallelOptions> all;
  all["dp"] = options_of(devices);
  all["dp, last device has the output"] = options_of(devices);
  all["dp, last device has the output"].output_device = devices - 1;
  all["dp by the first device"] = options_of(devices);
  all["dp by the first device"].inputs_on_first_device = true;
  all["dp, no threads per step"] = options_of(devices);
  all["dp, no threads per step"].threads_per_step = false;
  all["dp-balanced"] = options_of(devices);
  all["dp-balanced"].first_batch = 1;
  all["dp-balanced, first left out"] = options_of(devices);
  all["dp-balanced, first left out"].first_batch = 0;
  return all;
}

TEST(DataParallel, GivesExactlyWhatOneDeviceGivesWhereArithmeticIsExact) {
  for (const std::size_t samples : {1U, 2U, 4U, 8U}) {
    const Trained single = train(options_of(1), samples);
    for (const int devices : {2, 3, 4}) {
      for (const auto& [name, options] : strategies(devices)) {
        const Trained trained = train(options, samples);
        EXPECT_EQ(trained.parameters, single.parameters)
            << name << ' ' << devices << ' ' << samples;
        EXPECT_EQ(trained.losses, single.losses) << name << ' ' << devices << ' ' << samples;
      }
    }
  }
}

TEST(DataParallel, GivesWhatOneDeviceGivesWithinRoundingForAnyBatch) {
  for (const std::size_t samples : {3U, 5U, 7U}) {
    const Trained single = train(options_of(1), samples);
    for (const auto& [name, options] : strategies(4)) {
      const Trained trained = train(options, samples);
      EXPECT_THAT(trained.parameters, Pointwise(FloatNear(1e-4F), single.parameters)) << name;
    }
  }
}

std::vector<std::size_t> samples_by_device(int devices, std::size_t samples) {
  DataParallel trainer(std::make_unique<ToyLinear>(8, 10), plain_sgd(), options_of(devices));
  const Tensor outputs = trainer.forward(integers({samples, 8}, 1));
  EXPECT_EQ(outputs.shape(), (Shape{samples, 10}));
  std::vector<std::size_t> found;
  for (const DeviceReport& device : trainer.report().devices) found.push_back(device.samples);
  return found;
}

TEST(DataParallel, ScattersAsPublished) {
  EXPECT_THAT(samples_by_device(2, 6), ElementsAre(3, 3));
  EXPECT_THAT(samples_by_device(3, 6), ElementsAre(2, 2, 2));
  EXPECT_THAT(samples_by_device(4, 5), ElementsAre(2, 2, 1, 0));
}

TEST(DataParallel, GathersOutputsInTheBatchsOrder) {
  const Tensor inputs = integers({7, 3}, 5);
  DataParallel single(std::make_unique<ToyLinear>(3, 4), plain_sgd(), options_of(0));
  DataParallelOptions options = options_of(3);
  options.output_device = 1;
  DataParallel trainer(std::make_unique<ToyLinear>(3, 4), plain_sgd(), options);
  EXPECT_EQ(values_of(trainer.forward(inputs)), values_of(single.forward(inputs)));
}

TEST(DataParallel, LosesBuffersOfReplicasButTheFirst) {
  DataParallel trainer(std::make_unique<ToyLinear>(3, 2), plain_sgd(), options_of(2));
  for (int step = 0; step < 3; ++step) trainer.step(integer_batch(8, 3, 1), 0.5F);
  EXPECT_EQ(trainer.model().buffers().values()[0], 3 * 4) << "of 3 * 8 samples seen";
}

TEST(DataParallel, AccumulatesGradientsUntilAnUpdate) {
  DataParallel once(std::make_unique<ToyLinear>(3, 2), plain_sgd(), options_of(2));
  DataParallel twice(std::make_unique<ToyLinear>(3, 2), plain_sgd(), options_of(2));
  const Batch whole = integer_batch(8, 3, 4);
  const double loss = once.step(whole, 0.5F);
  double halves = 0;
  for (std::size_t half = 0; half < 2; ++half) {
    Batch batch;
    batch.inputs = Tensor({4, 3});
    std::copy_n(whole.inputs.data() + half * 12, 12, batch.inputs.data());
    batch.targets.assign(whole.targets.begin() + static_cast<long>(half) * 4,
                         whole.targets.begin() + static_cast<long>(half) * 4 + 4);
    batch.indices.resize(4);
    halves += twice.backward(batch, 0.5F) / 2;
  }
  twice.update(0.5F);
  EXPECT_EQ(halves, loss);
  EXPECT_EQ(parameters_of(twice.model()), parameters_of(once.model()));
}

TEST(DataParallel, SendsChangedParametersOfTheFirstDeviceInTheNextStep) {
  DataParallel trainer(std::make_unique<ToyLinear>(2, 1), plain_sgd(), options_of(2));
  trainer.forward(integers({4, 2}, 1));
  std::ranges::fill(trainer.model().parameters().values(), 1.0F);
  Tensor ones({4, 2});
  std::ranges::fill(ones.values(), 1.0F);
  EXPECT_THAT(values_of(trainer.forward(ones)), ElementsAre(2, 2, 2, 2));
}

TEST(DataParallel, NamesTheReplicaThatFailsAndGoesOnAfterwards) {
  for (const bool threads_per_step : {false, true}) {
    DataParallelOptions options = options_of(3);
    options.devices = {4, 7, 5};
    options.threads_per_step = threads_per_step;
    DataParallel trainer(std::make_unique<ToyLinear>(3, 2), plain_sgd(), options);
    Batch bad = integer_batch(6, 3, 1);
    bad.inputs.data()[3 * 3] = kForbidden;  // in the second device's chunk
    bad.inputs.data()[5 * 3] = kForbidden;  // in the third's
    try {
      trainer.step(bad, 0.5F);
      ADD_FAILURE() << "a replica's failure is not told";
    } catch (const ReplicaError& error) {
      EXPECT_STREQ(error.what(), "replica 1 on device 7: forbidden input");
      EXPECT_EQ(error.replica(), 1U);
      EXPECT_EQ(error.device(), 7);
      EXPECT_THROW(std::rethrow_if_nested(error), std::runtime_error);
    }
    DataParallel untouched(std::make_unique<ToyLinear>(3, 2), plain_sgd(), options_of(1));
    const Batch good = integer_batch(6, 3, 2);
    untouched.step(good, 0.5F);
    trainer.step(good, 0.5F);
    EXPECT_THAT(parameters_of(trainer.model()),
                Pointwise(FloatNear(1e-5F), parameters_of(untouched.model())));
  }
}

TEST(DataParallel, KeepsAccumulatedGradientsWhenTheCallerGivesNoBatch) {
  DataParallel careful(std::make_unique<ToyLinear>(3, 2), plain_sgd(), options_of(2));
  DataParallel careless(std::make_unique<ToyLinear>(3, 2), plain_sgd(), options_of(2));
  for (DataParallel* trainer : {&careful, &careless}) trainer->backward(integer_batch(4, 3, 1));
  EXPECT_THROW(careless.backward(Batch()), std::invalid_argument);
  for (DataParallel* trainer : {&careful, &careless}) trainer->update(0.5F);
  EXPECT_EQ(parameters_of(careless.model()), parameters_of(careful.model()));
}

std::size_t threads_of_a_step(DataParallelOptions options, std::size_t samples) {
  DataParallel trainer(std::make_unique<ToyLinear>(3, 2), plain_sgd(), std::move(options));
  trainer.step(integer_batch(samples, 3, 1), 0.5F);
  trainer.step(integer_batch(samples, 3, 2), 0.5F);
  return trainer.report().threads_started;
}

TEST(DataParallel, StartsAThreadForEachReplicaAndEachParallelLoss) {
  DataParallelOptions criterion = options_of(3);
  criterion.parallel_loss = true;
  DataParallelOptions persistent = criterion;
  persistent.threads_per_step = false;
  EXPECT_EQ(threads_of_a_step(options_of(3), 6), 3U);
  EXPECT_EQ(threads_of_a_step(options_of(4), 5), 3U) << "5 samples are 3 pieces";
  EXPECT_EQ(threads_of_a_step(criterion, 6), 6U);
  EXPECT_EQ(threads_of_a_step(persistent, 6), 0U);
  EXPECT_EQ(threads_of_a_step(options_of(1), 6), 0U) << "the plain model";
}

TEST(DataParallel, ReportsLossAndSamples) {
  DataParallel trainer(std::make_unique<ToyLinear>(3, 2), plain_sgd(), options_of(2));
  const double loss = trainer.step(integer_batch(8, 3, 1), 0.5F);
  const StepReport report = trainer.report();
  EXPECT_EQ(report.loss, loss);
  EXPECT_EQ(report.samples, 8U);
  EXPECT_EQ(report.devices.size(), 2U);
}

TEST(DataParallel, ServesSeveralTrainersAtATime) {
  const Batch batch = integer_batch(8, 3, 1);
  DataParallel first(std::make_unique<ToyLinear>(3, 2), plain_sgd(), options_of(2));
  DataParallel second(std::make_unique<ToyLinear>(3, 2), plain_sgd(), options_of(3));
  EXPECT_EQ(first.step(batch, 0.5F), second.step(batch, 0.5F));
}

}  // namespace
}  // namespace unisono::train
