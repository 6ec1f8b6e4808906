// Where tensors, models, optimizers and batches lie, and that values find their way between.
#include <gmock/gmock.h>

#include <algorithm>
#include <stdexcept>

#include "tests/cuda/driver_under_test.h"
#include "tests/train/cuda/cublas_under_test.h"
#include "tests/train/cuda/training_fixture.h"
#include "tests/train/ddp/toy_model.h"
#include "unisono/train/checkpoint.h"
#include "unisono/train/checkpointing.h"
#include "unisono/train/loader.h"
#include "unisono/train/loss.h"

namespace unisono::test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using train::DeviceMemory;
using train::Residence;
using train::Tensor;

class Placement : public testing::Test {
 protected:
  Placement() { use_cublas_under_test(); }
};

Tensor tensor(std::vector<float> values) {
  Tensor tensor({values.size()});
  std::copy(values.begin(), values.end(), tensor.data());
  return tensor;
}

TEST_F(Placement, OfATensorIsTheScopeOfItsMaker) {
  const Tensor on_host = tensor({1, 2, 3});
  EXPECT_TRUE(on_host.on_host());
  DeviceMemory gpu(Residence::kCuda), other(Residence::kCuda);
  Tensor there;
  {
    const DeviceMemory::Scope scope(gpu);
    there = Tensor(on_host);
    EXPECT_FALSE(there.on_host());
    EXPECT_THAT(Tensor({4}).to_host().values(), Each(0.0F));
  }
  EXPECT_EQ(gpu.use().now, 3 * sizeof(float)) << "charged to the GPU";
  EXPECT_THAT(there.to_host().values(), ElementsAre(1, 2, 3));
  EXPECT_THAT(Tensor(there).values(), ElementsAre(1, 2, 3)) << "a copy lies where it is made";
  const DeviceMemory::Scope scope(other);
  const Tensor from_gpu_to_gpu(there);
  EXPECT_EQ(other.use().now, 3 * sizeof(float));
  EXPECT_THAT(from_gpu_to_gpu.to_host().values(), ElementsAre(1, 2, 3));
}

TEST_F(Placement, EndsWithTheAccountThatWasCharged) {
  DeviceMemory gpu(Residence::kCuda);
  gpu.set_limit(64);
  const DeviceMemory::Scope scope(gpu);
  {
    const Tensor fits({16});
    EXPECT_THROW(Tensor({1}), train::OutOfDeviceMemory);
  }
  EXPECT_EQ(gpu.use().now, 0U);
  EXPECT_NO_THROW(Tensor({16}));
}

TEST_F(Placement, OfAModelIsThatOfItsParameters) {
  for (const TrainingProblem& problem : training_problems()) {
    DeviceMemory gpu(Residence::kCuda);
    const auto host = problem.make_model();
    const auto there = train::clone_to(*host, gpu);
    EXPECT_FALSE(there->parameters().storage().on_host());
    EXPECT_EQ(there->parameters().read(), host->parameters().read());
    // Without a scope: it computes where it lies.
    train::Pass pass{.training = false};
    const Tensor outputs = there->forward(whole_batch(problem, 0).inputs, pass);
    EXPECT_FALSE(outputs.on_host());
    EXPECT_EQ(outputs.account(), there->parameters().storage().account());
    const DeviceMemory::Scope scope(gpu);
    const auto made_there = problem.make_model();
    EXPECT_FALSE(made_there->parameters().storage().on_host());
    EXPECT_EQ(made_there->parameters().read(), host->parameters().read());
  }
}

TEST_F(Placement, OfAModelThatTouchesItsValuesIsTheHost) {
  DeviceMemory gpu(Residence::kCuda);
  try {
    train::clone_to(ToyModel(), gpu);
    FAIL() << "no GPU can compute it";
  } catch (const std::invalid_argument& refusal) {
    EXPECT_THAT(refusal.what(), HasSubstr("toy computes on the host"));
  }
}

TEST_F(Placement, OfAGradientIsThatOfTheOutputs) {
  DeviceMemory gpu(Residence::kCuda);
  const Tensor logits = tensor({1, 2, 3, 3, 2, 1}).reshaped({2, 3});
  Tensor there;
  {
    const DeviceMemory::Scope scope(gpu);
    there = Tensor(logits);
  }
  const std::vector<std::int32_t> targets{2, 1};
  Tensor expected, gradient;
  const double loss = train::cross_entropy(logits, targets, &expected, 0.5F);
  EXPECT_NEAR(train::cross_entropy(there, targets, &gradient, 0.5F), loss, 1e-6);
  EXPECT_FALSE(gradient.on_host());
  const Tensor got = gradient.to_host();
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got.data()[i], expected.data()[i], 1e-6);
  }
  EXPECT_EQ(train::count_correct(there, targets), 1U);
}

TEST_F(Placement, DoesNotShowInACheckpoint) {
  const TrainingProblem& problem = training_problems()[1];
  DeviceMemory gpu(Residence::kCuda);
  train::Checkpoint checkpoint;
  std::vector<float> momentum;
  {
    const DeviceMemory::Scope scope(gpu);
    auto model = problem.make_model();
    const auto optimizer = make_optimizer(*model);
    train::Pass pass;
    const Tensor outputs = model->forward(whole_batch(problem, 0).inputs, pass);
    Tensor gradient;
    train::cross_entropy(outputs, whole_batch(problem, 0).targets, &gradient);
    model->backward(gradient, pass);
    optimizer->step(model->parameters().values(), model->gradients().values(), kRate);
    train::take_model(*model, &checkpoint);
    train::take_optimizer(*optimizer, &checkpoint);
    momentum = optimizer->read(optimizer->state()[0]);
  }
  auto on_host = problem.make_model();
  train::restore_model(checkpoint, on_host.get());
  const auto optimizer = make_optimizer(*on_host);
  train::restore_optimizer(checkpoint, optimizer.get(), 0, momentum.size());
  EXPECT_EQ(optimizer->read(optimizer->state()[0]), momentum);
  EXPECT_THAT(momentum, testing::Contains(testing::Ne(0.0F)));
  const DeviceMemory::Scope scope(gpu);
  auto there = problem.make_model();
  train::restore_model(checkpoint, there.get());
  EXPECT_EQ(there->parameters().read(), on_host->parameters().read());
  EXPECT_EQ(there->buffers().read(), on_host->buffers().read());
  EXPECT_NE(on_host->parameters().read(), problem.make_model()->parameters().read());
}

class FewSamples : public train::Dataset {
 public:
  std::size_t size() const override { return 6; }
  int classes() const override { return 1; }
  train::Shape input_shape() const override { return {2}; }
  std::size_t targets_per_sample() const override { return 1; }
  std::size_t length(std::size_t) const override { return 2; }
  void read(std::size_t index, std::span<float> input,
            std::span<std::int32_t> targets) const override {
    input[0] = input[1] = static_cast<float>(index);
    targets[0] = 0;
  }
  std::string describe() const override { return "few samples"; }
};

TEST_F(Placement, OfBatchesIsTheHost) {
  FewSamples samples;
  DeviceMemory gpu(Residence::kCuda), locked(Residence::kPageLocked);
  for (const int workers : {0, 2}) {
    for (DeviceMemory* memory : {static_cast<DeviceMemory*>(nullptr), &locked}) {
      const DeviceMemory::Scope scope(gpu);
      train::Loader loader(samples, {.batch_samples = 3, .workers = workers, .memory = memory});
      loader.begin(0);
      std::vector<float> seen;
      while (const auto batch = loader.next()) {
        EXPECT_TRUE(batch->inputs.on_host());
        EXPECT_EQ(batch->inputs.account() == nullptr, memory == nullptr);
        const Tensor there(batch->inputs);
        EXPECT_FALSE(there.on_host());
        const Tensor back = there.to_host();
        seen.insert(seen.end(), back.values().begin(), back.values().end());
      }
      EXPECT_THAT(seen, ElementsAre(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5));
    }
  }
  EXPECT_GT(locked.use().peak, 0U);
}

TEST_F(Placement, OfAnOptimizerIsThatOfWhatItSteps) {
  DeviceMemory gpu(Residence::kCuda), other(Residence::kCuda);
  const auto model = train::clone_to(*training_problems()[0].make_model(), gpu);
  const auto on_host = make_optimizer(*model);
  EXPECT_THROW(train::step(*on_host, *model, kRate), std::invalid_argument);
  {
    const DeviceMemory::Scope scope(other);
    const auto elsewhere = make_optimizer(*model);
    EXPECT_THROW(train::step(*elsewhere, *model, kRate), std::invalid_argument);
  }
  const DeviceMemory::Scope scope(gpu);
  const auto beside = make_optimizer(*model);
  EXPECT_NO_THROW(train::step(*beside, *model, kRate));
}

TEST_F(Placement, OfLargeBatchesMayBeWrittenAgainOnceTheyAreCopied) {
  DeviceMemory gpu(Residence::kCuda), locked(Residence::kPageLocked);
  Tensor batch;
  {
    const DeviceMemory::Scope scope(locked);
    batch = Tensor({std::size_t{2} << 20});
  }
  const DeviceMemory::Scope scope(gpu);
  for (int round = 0; round < 5; ++round) {
    std::fill(batch.values().begin(), batch.values().end(), static_cast<float>(round));
    const Tensor there(batch);
    std::fill(batch.values().begin(), batch.values().end(), -1.0F);
    const Tensor back = there.to_host();
    EXPECT_TRUE(std::all_of(back.values().begin(), back.values().end(),
                            [&](float value) { return value == static_cast<float>(round); }));
  }
}

TEST_F(Placement, OnAGpuThatIsNotThereIsRefused) {
  try {
    const DeviceMemory none(Residence::kCuda, 99);
    FAIL() << "there are not so many";
  } catch (const std::runtime_error& refusal) {
    EXPECT_THAT(refusal.what(), HasSubstr("device 99"));
  }
}

TEST_F(Placement, OfStepsByEveryOptimizerAndCheckpointing) {
  for (const TrainingProblem& problem : training_problems()) {
    const TrainingResult expected = train_on_host(problem);
    for (const auto mode :
         {train::Checkpointing::kNone, train::Checkpointing::kSqrt, train::Checkpointing::kPoor}) {
      DeviceMemory gpu(Residence::kCuda);
      const DeviceMemory::Scope scope(gpu);
      auto model = problem.make_model();
      train::set_checkpointing(*model, mode);
      SCOPED_TRACE(problem.name);
      EXPECT_NO_THROW(require_alike(train_alone(problem, std::move(model)), expected, 2e-4));
    }
  }
}

}  // namespace
}  // namespace unisono::test
