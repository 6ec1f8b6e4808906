// Gradient checkpointing: the same gradients from less memory, at the stated price.
#include "unisono/train/checkpointing.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "tests/train/model/layer_bench.h"
#include "train/model/sequential.h"
#include "unisono/train/loss.h"
#include "unisono/train/models.h"
#include "unisono/train/optimizer.h"

namespace unisono::train {
namespace {

using ::testing::HasSubstr;

struct Outcome {
  std::vector<float> gradients, buffers;
  std::vector<int> ready;
  Pass pass;
};

Outcome train_once(Model& model, const Tensor& input, std::span<const std::int32_t> targets) {
  Outcome outcome;
  outcome.pass = {.seed = 3, .step = 4, .micro_batch = 5};
  outcome.pass.gradient_ready = [&outcome](int parameter) { outcome.ready.push_back(parameter); };
  const Tensor output = model.forward(input, outcome.pass);
  Tensor gradient;
  cross_entropy(output, targets, &gradient);
  model.backward(gradient, outcome.pass);
  const auto gradients = model.gradients().values(), buffers = model.buffers().values();
  outcome.gradients.assign(gradients.begin(), gradients.end());
  outcome.buffers.assign(buffers.begin(), buffers.end());
  outcome.pass.gradient_ready = nullptr;
  return outcome;
}

void expect_the_same_bits(const Model& model, const Tensor& input,
                          std::span<const std::int32_t> targets) {
  const auto plain = model.clone();
  const Outcome expected = train_once(*plain, input, targets);
  EXPECT_EQ(expected.ready.size(), model.parameters().entries().size());
  for (const auto mode : {Checkpointing::kSqrt, Checkpointing::kPoor}) {
    const auto replica = model.clone();
    set_checkpointing(*replica, mode);
    const Outcome outcome = train_once(*replica->clone(), input, targets);
    EXPECT_EQ(outcome.gradients, expected.gradients) << model.describe();
    EXPECT_EQ(outcome.buffers, expected.buffers) << model.describe();
    EXPECT_EQ(outcome.ready, expected.ready) << model.describe();
    EXPECT_TRUE(outcome.pass.update_buffers);
    EXPECT_GT(outcome.pass.layer_forwards, expected.pass.layer_forwards);
    EXPECT_LT(outcome.pass.kept_inputs_peak, expected.pass.kept_inputs_peak);
  }
}

TEST(Checkpointing, GivesTheSameBitsForEveryModel) {
  const std::vector<std::int32_t> targets = {0, 1, 2};
  expect_the_same_bits(*make_mlp({.widths = {6, 9, 8, 7, 3}, .dropout = 0.3F}),
                       random_tensor({3, 6}, 1), targets);
  expect_the_same_bits(*make_cnn({.size = 8, .filters = {2, 3}, .classes = 3}),
                       random_tensor({3, 64}, 2), targets);
  Tensor tokens({2, 3});
  for (std::size_t i = 0; i < 6; ++i) tokens.data()[i] = static_cast<float>(i % 5);
  const std::vector<std::int32_t> next = {1, 2, 3, 4, 0, 1};
  expect_the_same_bits(
      *make_gpt({.vocabulary = 5, .context = 3, .width = 8, .heads = 2, .dropout = 0.2F}), tokens,
      next);
}

/// n layers of the same width without parameters that grow: n - 1 of ReLU after one dense.
std::unique_ptr<Model> deep_model(std::size_t layers, std::size_t width) {
  Layers list = {make_dense(2, width)};
  while (list.size() + 1 < layers) list.push_back(make_gelu());
  list.push_back(make_dense(width, 2));
  return std::make_unique<Sequential>("deep", 2, std::move(list), 1);
}

TEST(Checkpointing, CostsWhatItSays) {
  const Tensor input = random_tensor({2, 2}, 1);
  const std::vector<std::int32_t> targets = {0, 1};
  for (const std::size_t n : {2, 3, 4, 9, 10, 16, 17}) {
    const auto model = deep_model(n, 3);
    const auto pass_of = [&](Checkpointing mode) {
      set_checkpointing(*model, mode);
      return train_once(*model, input, targets).pass;
    };
    Pass pass = pass_of(Checkpointing::kNone);
    EXPECT_EQ(pass.layer_forwards, n);
    EXPECT_EQ(pass.kept_inputs_peak, n);
    pass = pass_of(Checkpointing::kSqrt);
    const auto segment = static_cast<std::size_t>(std::ceil(std::sqrt(static_cast<double>(n))));
    const std::size_t segments = (n + segment - 1) / segment;
    EXPECT_EQ(pass.layer_forwards, 2 * n);
    EXPECT_LE(pass.kept_inputs_peak, segments + segment - 1);
    EXPECT_GE(pass.kept_inputs_peak, segments);
    pass = pass_of(Checkpointing::kPoor);
    EXPECT_EQ(pass.layer_forwards, n + n * (n + 1) / 2);
    EXPECT_EQ(pass.kept_inputs_peak, 2U);
  }
}

TEST(Checkpointing, TrainsUnderALimitThatRefusesOneSampleWithoutIt) {
  const std::size_t width = 1000, layers = 25;
  const Tensor input = random_tensor({1, 2}, 1);
  const std::vector<std::int32_t> targets = {1};
  const auto train_under = [&](Checkpointing mode, std::size_t limit) {
    DeviceMemory memory;
    const DeviceMemory::Scope scope(memory);
    const auto model = deep_model(layers, width);
    const auto optimizer = make_sgd(model->parameters().values().size());
    set_checkpointing(*model, mode);
    memory.set_limit(memory.use().now + limit);
    double loss = 0;
    for (std::size_t step = 0; step < 20; ++step) {
      Pass pass{.step = step};
      std::ranges::fill(model->gradients().values(), 0.0F);
      const Tensor output = model->forward(input, pass);
      Tensor gradient;
      const double now = cross_entropy(output, targets, &gradient);
      if (step > 0) {
        EXPECT_LT(now, loss);
      }
      loss = now;
      model->backward(gradient, pass);
      optimizer->step(model->parameters().values(), model->gradients().values(), 0.01F);
    }
  };
  const std::size_t activation = width * sizeof(float);
  EXPECT_THROW(train_under(Checkpointing::kNone, 13 * activation), OutOfDeviceMemory);
  train_under(Checkpointing::kSqrt, 13 * activation);
  EXPECT_THROW(train_under(Checkpointing::kSqrt, 5 * activation), OutOfDeviceMemory);
  train_under(Checkpointing::kPoor, 5 * activation);
}

TEST(Checkpointing, LeavesNothingBehindWhereMemoryRanOut) {
  DeviceMemory memory;
  const DeviceMemory::Scope scope(memory);
  const auto model = deep_model(9, 100);
  const std::size_t before = memory.use().now;
  memory.set_limit(before + 1200);
  const Tensor input = Tensor({1, 2});
  Pass pass;
  EXPECT_THROW(model->forward(input, pass), OutOfDeviceMemory);
  EXPECT_EQ(memory.use().now, before + input.size() * sizeof(float));
  EXPECT_THROW(model->backward(Tensor({1, 2}), pass), std::invalid_argument);
}

class ForeignModel final : public Model {
 public:
  Tensor forward(const Tensor& inputs, Pass&) override { return inputs; }
  void backward(const Tensor&, Pass&) override {}
  std::unique_ptr<Model> clone() const override { return std::make_unique<ForeignModel>(); }
  std::string describe() const override { return "a model of the user's"; }
};

TEST(Checkpointing, RefusesAModelWhoseLayersItDoesNotKnow) {
  ForeignModel model;
  try {
    set_checkpointing(model, Checkpointing::kSqrt);
    FAIL() << "it knows";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("a model of the user's"));
  }
  EXPECT_THROW(convert_sync_batch_norm(model), std::invalid_argument);
}

}  // namespace
}  // namespace unisono::train
