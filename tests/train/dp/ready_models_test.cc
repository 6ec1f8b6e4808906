// The ready models, cross entropy and stateful optimizers under each strategy, against one device.
#include <gmock/gmock.h>

#include <map>

#include "tests/train/dp/toy_models.h"
#include "unisono/train/checkpoint.h"
#include "unisono/train/data_parallel.h"
#include "unisono/train/models.h"

namespace unisono::train {
namespace {

using testing::FloatNear;
using testing::Pointwise;

std::map<std::string, DataParallelOptions> strategies() {
  std::map<std::string, DataParallelOptions> all;
  all["dp"].devices = {0, 1, 2};
  all["dp, output device 1"].devices = {0, 1, 2};
  all["dp, output device 1"].output_device = 1;
  all["dp-balanced"].devices = {0, 1, 2};
  all["dp-balanced"].first_batch = 2;
  all["dp-criterion"].devices = {0, 1, 2};
  all["dp-criterion"].parallel_loss = true;
  all["dp-criterion, balanced"] = all["dp-criterion"];
  all["dp-criterion, balanced"].first_batch = 2;
  return all;
}

std::vector<float> train(std::unique_ptr<Model> model, const OptimizerFactory& optimizer,
                         const DataParallelOptions& options, const std::vector<Batch>& batches,
                         std::vector<double>* losses) {
  DataParallel trainer(std::move(model), optimizer, options);
  for (const Batch& batch : batches) losses->push_back(trainer.step(batch, 0.01F));
  return parameters_of(trainer.model());
}

void expect_equivalence(const std::function<std::unique_ptr<Model>()>& make,
                        const OptimizerFactory& optimizer, const std::vector<Batch>& batches) {
  std::vector<double> expected_losses;
  const std::vector<float> expected = train(make(), optimizer, {}, batches, &expected_losses);
  for (const auto& [name, options] : strategies()) {
    std::vector<double> losses;
    EXPECT_THAT(train(make(), optimizer, options, batches, &losses),
                Pointwise(FloatNear(1e-4F), expected))
        << name;
    EXPECT_THAT(losses, Pointwise(testing::DoubleNear(1e-4), expected_losses)) << name;
  }
}

TEST(ReadyModels, TrainAnMlpLikeOneDeviceWithMomentum) {
  std::vector<Batch> batches;
  for (std::uint32_t step = 0; step < 5; ++step) batches.push_back(integer_batch(11, 12, step));
  expect_equivalence(
      [] {
        return make_mlp({.widths = {12, 16, 5}});
      },
      [](std::size_t count) { return make_sgd(count, {.momentum = 0.9F}); }, batches);
}

TEST(ReadyModels, TrainATransformerLikeOneDeviceWithAdamW) {
  // Targets are one class for each of a sample's 8 places.
  std::vector<Batch> batches;
  for (std::uint32_t step = 0; step < 3; ++step) {
    Batch batch;
    batch.inputs = Tensor({7, 8});
    for (std::size_t i = 0; i < batch.inputs.size(); ++i) {
      batch.inputs.data()[i] = static_cast<float>((i * 5 + step) % 11);
      batch.targets.push_back(static_cast<std::int32_t>((i * 3 + step) % 11));
    }
    batch.indices.resize(7);
    batches.push_back(std::move(batch));
  }
  const GptOptions gpt{.vocabulary = 11, .context = 8, .layers = 1, .width = 16, .heads = 2};
  // Adam divides by the gradient's size: where that is rounding alone, signs may differ.
  const auto adamw = [](std::size_t count) { return make_adamw(count, {.epsilon = 1e-2F}); };
  expect_equivalence([&] { return make_gpt(gpt); }, adamw, batches);
}

TEST(ReadyModels, DrawOtherDropoutOnEachDevice) {
  DataParallelOptions options;
  options.devices = {0, 1};
  DataParallel trainer(make_mlp({.widths = {4, 64, 5}, .dropout = 0.5F}), plain_sgd(), options);
  NamedTensors inputs;
  inputs["inputs"] = Tensor({2, 4});
  std::ranges::fill(inputs["inputs"].values(), 1.0F);
  const std::vector<Tensor> outputs = trainer.gather(trainer.predict(inputs, true));
  const std::vector<float> both = values_of(outputs[0]);
  EXPECT_NE(std::vector<float>(both.begin(), both.begin() + 5),
            std::vector<float>(both.begin() + 5, both.end()));
}

std::unique_ptr<DataParallel> dropping_trainer() {
  DataParallelOptions options;
  options.devices = {0, 1};
  return std::make_unique<DataParallel>(make_mlp({.widths = {12, 16, 5}, .dropout = 0.5F}),
                                        plain_sgd(), options);
}

TEST(ReadyModels, DrawTheDropoutOfTheirStepAfterACheckpoint) {
  const auto at_once = dropping_trainer(), before = dropping_trainer(), after = dropping_trainer();
  for (std::uint32_t step = 0; step < 4; ++step) at_once->step(integer_batch(8, 12, step), 0.01F);
  for (std::uint32_t step = 0; step < 2; ++step) before->step(integer_batch(8, 12, step), 0.01F);
  Checkpoint checkpoint;
  take_model(before->model(), &checkpoint);
  take_optimizer(before->optimizer(), &checkpoint);
  restore_model(checkpoint, &after->model());
  restore_optimizer(checkpoint, &after->optimizer(), 0, parameters_of(after->model()).size());
  for (std::uint32_t step = 2; step < 4; ++step) after->step(integer_batch(8, 12, step), 0.01F);
  EXPECT_EQ(parameters_of(after->model()), parameters_of(at_once->model()));
}

TEST(ReadyModels, DrawTheSameDropoutHoweverOftenTheyAreEvaluated) {
  const auto plain = dropping_trainer(), evaluated = dropping_trainer();
  for (std::uint32_t step = 0; step < 2; ++step) {
    for (std::uint32_t pass = 0; pass < 2; ++pass) {
      const Batch batch = integer_batch(8, 12, 2 * step + pass);
      plain->backward(batch);
      evaluated->forward(batch.inputs);
      evaluated->backward(batch);
      evaluated->predict({{"inputs", batch.inputs}});
    }
    plain->update(0.01F);
    evaluated->update(0.01F);
  }
  EXPECT_EQ(parameters_of(evaluated->model()), parameters_of(plain->model()));
}

}  // namespace
}  // namespace unisono::train
