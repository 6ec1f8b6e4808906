// dp-criterion: the loss with scattered targets, weighted and unweighted; outputs that stay where
// they are, unzipped and gathered for a loss that is not parallel.
#include <gmock/gmock.h>

#include <stdexcept>

#include "tests/train/dp/toy_models.h"
#include "unisono/train/data_parallel.h"

namespace unisono::train {
namespace {

using testing::FloatNear;
using testing::HasSubstr;
using testing::Pointwise;
using testing::ThrowsMessage;

DataParallelOptions parallel(int devices, bool weighted = true) {
  DataParallelOptions options;
  options.devices = device_list(devices);
  options.loss = half_squares;
  options.parallel_loss = true;
  options.weighted_loss = weighted;
  return options;
}

std::unique_ptr<Model> toy() { return std::make_unique<ToyLinear>(3, 2); }

TEST(ParallelLoss, TrainsExactlyLikeOneDeviceOnEqualChunks) {
  for (const bool weighted : {true, false}) {
    for (const int output_device : {0, 1}) {
      DataParallel single(toy(), plain_sgd(), parallel(1));
      DataParallelOptions options = parallel(4, weighted);
      options.output_device = output_device;
      DataParallel trainer(toy(), plain_sgd(), options);
      for (std::uint32_t step = 0; step < 3; ++step) {
        const Batch batch = integer_batch(8, 3, step);
        EXPECT_EQ(trainer.step(batch, 0.5F), single.step(batch, 0.5F)) << step;
        EXPECT_EQ(parameters_of(trainer.model()), parameters_of(single.model())) << step;
      }
    }
  }
}

TEST(ParallelLoss, WeighsChunksByTheirSamples) {
  for (const std::size_t samples : {1U, 3U, 5U, 9U}) {
    for (const bool balanced : {false, true}) {
      DataParallel single(toy(), plain_sgd(), parallel(1));
      DataParallelOptions options = parallel(4);
      if (balanced) options.first_batch = samples < 9 ? 0 : 1;
      options.output_device = 3;
      DataParallel trainer(toy(), plain_sgd(), options);
      const Batch batch = integer_batch(samples, 3, 3);
      const double loss = single.step(batch, 0.5F);
      EXPECT_NEAR(trainer.step(batch, 0.5F), loss, 1e-5 * loss) << samples;
      EXPECT_THAT(parameters_of(trainer.model()),
                  Pointwise(FloatNear(1e-4F), parameters_of(single.model())))
          << samples;
    }
  }
}

TEST(ParallelLoss, UnweightedIsThePublishedMeanOfMeans) {
  // Outputs are x * weight = 0 for the first chunk of 2 and 4 for the last of 1; targets are 0.
  DataParallel trainer(std::make_unique<ToyLinear>(1, 1), plain_sgd(), parallel(2, false));
  trainer.model().parameters().values()[0] = 1.0F;
  Batch batch;
  batch.inputs = Tensor({3, 1});
  batch.inputs.data()[2] = 4.0F;
  batch.targets = {0, 0, 0};
  batch.indices = {0, 1, 2};
  EXPECT_EQ(trainer.step(batch, 0.125F), (0 + 8) / 2.0) << "the mean of all is 8 / 3";
  EXPECT_EQ(trainer.model().parameters().values()[0], 1 - 0.125F * (0 + 16) / 2);
}

TEST(ParallelLoss, UsesAllTargets) {
  DataParallel trainer(toy(), plain_sgd(), parallel(3));
  const Batch batch = integer_batch(6, 3, 3);
  const double loss = trainer.backward(batch);
  for (std::size_t i = 0; i < batch.samples(); ++i) {
    Batch other = integer_batch(6, 3, 3);
    other.targets[i] += 100;
    EXPECT_NE(trainer.backward(other), loss) << i;
  }
}

TEST(ParallelLoss, RefusesTargetsThatAreNotTheSamples) {
  DataParallel trainer(toy(), plain_sgd(), parallel(2));
  Batch batch = integer_batch(4, 3, 3);
  batch.targets.pop_back();
  EXPECT_THAT([&] { trainer.step(batch, 1.0F); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("3 targets")));
  trainer.step(integer_batch(4, 3, 3), 1.0F);
}

TEST(ParallelLoss, OfPredictionsNeedsNoGradients) {
  DataParallel trainer(toy(), plain_sgd(), parallel(3));
  const Batch batch = integer_batch(8, 3, 3);
  NamedTensors inputs;
  inputs["x"] = batch.inputs;
  const Predictions predictions = trainer.predict(inputs);
  const double loss = trainer.criterion(predictions, batch.targets);
  EXPECT_NEAR(loss, trainer.backward(batch), 1e-6 * loss);
}

TEST(Predictions, AreGatheredToADeviceOrToTheCaller) {
  const Batch batch = integer_batch(7, 3, 3);
  NamedTensors inputs;
  inputs["x"] = batch.inputs;
  DataParallel single(toy(), plain_sgd(), parallel(1));
  DataParallel trainer(toy(), plain_sgd(), parallel(3));
  const std::vector<float> expected = values_of(single.forward(batch.inputs));
  const Predictions predictions = trainer.predict(inputs);
  ASSERT_EQ(predictions.devices.size(), 3U);
  EXPECT_EQ(predictions.devices[0][0].shape(), (Shape{3, 2}));
  EXPECT_EQ(values_of(trainer.gather(predictions)[0]), expected);
  for (const int device : {0, 1, 2}) {
    EXPECT_EQ(values_of(trainer.gather(predictions, device)[0]), expected);
  }
  EXPECT_THROW(trainer.gather(predictions, 3), std::invalid_argument);
}

TEST(Predictions, GatheredForALossThatIsNotParallelTrainTheReplicas) {
  const Batch batch = integer_batch(8, 3, 3);
  NamedTensors inputs;
  inputs["x"] = batch.inputs;
  DataParallel single(toy(), plain_sgd(), parallel(1));
  single.step(batch, 0.5F);
  DataParallel trainer(toy(), plain_sgd(), parallel(3));
  const std::vector<Tensor> outputs = trainer.gather(trainer.predict(inputs, true));
  std::vector<Tensor> gradients(1);
  half_squares(outputs[0], batch.targets, gradients.data(), 1.0F);
  trainer.propagate(gradients);
  trainer.update(0.5F);
  EXPECT_EQ(parameters_of(trainer.model()), parameters_of(single.model()));
  EXPECT_THAT([&] { trainer.propagate(gradients); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("predict() for training")));
}

TEST(Predictions, TakeGradientsOfTheirOwnShapeOnly) {
  DataParallel trainer(toy(), plain_sgd(), parallel(2));
  NamedTensors inputs;
  inputs["x"] = integers({4, 3}, 1);
  trainer.predict(inputs, true);
  std::vector<Tensor> gradients(1);
  gradients[0] = Tensor({4, 3});
  EXPECT_THAT([&] { trainer.propagate(gradients); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("[4, 2]")));
}

/// Of a backward pass that fails at a gradient of kForbidden.
class FailingBackward : public ToyLinear {
 public:
  FailingBackward() : ToyLinear(3, 2) {}
  void backward(const Tensor& output_gradient, Pass& pass) override {
    for (const float value : output_gradient.values()) {
      if (value == kForbidden) throw std::runtime_error("forbidden gradient");
    }
    ToyLinear::backward(output_gradient, pass);
  }
  std::unique_ptr<Model> clone() const override { return std::make_unique<FailingBackward>(*this); }
};

TEST(Predictions, LeaveNothingOfGradientsThatAReplicaFailedWith) {
  const Tensor inputs = integers({4, 3}, 1);
  const auto propagate = [&](DataParallel& trainer, const Tensor& gradient) {
    trainer.predict({{"x", inputs}}, true);
    trainer.propagate({gradient});
  };
  const Tensor good = integers({4, 2}, 2);
  Tensor bad = good;
  bad.data()[2 * 2] = kForbidden;  // in the second device's chunk
  DataParallel failed(std::make_unique<FailingBackward>(), plain_sgd(), parallel(2));
  DataParallel untouched(std::make_unique<FailingBackward>(), plain_sgd(), parallel(2));
  EXPECT_THROW(propagate(failed, bad), ReplicaError);
  for (DataParallel* trainer : {&failed, &untouched}) {
    propagate(*trainer, good);
    trainer->update(0.5F);
  }
  EXPECT_EQ(parameters_of(failed.model()), parameters_of(untouched.model()));
}

TEST(Predictions, TakeNoGradientsAfterAnEvaluationEvenOneThatFailed) {
  DataParallel trainer(toy(), plain_sgd(), parallel(2));
  Tensor bad = integers({4, 3}, 2);
  bad.data()[2 * 3] = kForbidden;  // in the second device's chunk
  trainer.predict({{"x", integers({4, 3}, 1)}}, true);
  EXPECT_THROW(trainer.forward(bad), ReplicaError);
  EXPECT_THAT(
      [&] {
        trainer.propagate({Tensor({4, 2})});
      },
      ThrowsMessage<std::invalid_argument>(HasSubstr("predict() for training")));
}

TEST(Predictions, ThatDoNotFitTheDevicesAreRefused) {
  DataParallel trainer(toy(), plain_sgd(), parallel(2));
  NamedTensors inputs;
  inputs["x"] = integers({4, 3}, 1);
  Predictions predictions = trainer.predict(inputs);
  predictions.devices.pop_back();
  EXPECT_THROW(trainer.criterion(predictions, std::vector<std::int32_t>(4)), std::invalid_argument);
  EXPECT_THROW(trainer.gather(predictions), std::invalid_argument);
  predictions.devices.resize(3);
  predictions.chunks.resize(3);
  EXPECT_THROW(trainer.gather(predictions, 0), std::invalid_argument);
}

TEST(Predictions, OfSeveralOutputsUnzip) {
  DataParallelOptions options = parallel(3);
  DataParallel trainer(std::make_unique<ToyTwins>(2), plain_sgd(), options);
  NamedTensors inputs;
  inputs["left"] = integers({4, 2}, 1);
  inputs["right"] = integers({4, 2}, 2);
  Predictions predictions = trainer.predict(inputs);
  const std::vector<Tensor> gathered = trainer.gather(predictions);
  const std::vector<std::vector<Tensor>> unzipped = unzip(std::move(predictions));
  ASSERT_EQ(unzipped.size(), 2U);
  for (std::size_t output = 0; output < 2; ++output) {
    ASSERT_EQ(unzipped[output].size(), 2U) << "4 samples on 3 devices are 2 pieces";
    std::vector<float> joined = values_of(unzipped[output][0]);
    const std::vector<float> rest = values_of(unzipped[output][1]);
    joined.insert(joined.end(), rest.begin(), rest.end());
    EXPECT_EQ(joined, values_of(gathered[output]));
  }
  EXPECT_EQ(values_of(unzipped[1][0])[1], inputs["right"].data()[1] * 4);
}

}  // namespace
}  // namespace unisono::train
