// What DataParallel takes: named inputs, other dimensions, a loss inside the model; and what it
// refuses.
#include <gmock/gmock.h>

#include <stdexcept>

#include "tests/train/dp/toy_models.h"
#include "unisono/train/data_parallel.h"

namespace unisono::train {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(DataParallelInputs, AreScatteredAlongAnyDimension) {
  Batch batch;
  batch.inputs = integers({3, 8}, 9);
  batch.targets = {0, 1, 2, 3, 4, 3, 2, 1};
  batch.indices.resize(8);
  std::vector<std::vector<float>> found;
  std::vector<std::vector<float>> outputs;
  for (const int devices : {1, 2, 3}) {
    for (const bool by_first : {false, true}) {
      DataParallelOptions options;
      options.devices = device_list(devices);
      options.output_device = devices - 1;
      options.dim = 1;
      options.inputs_on_first_device = by_first;
      options.loss = half_squares_last;
      DataParallel trainer(std::make_unique<ToyLinear>(3, 2, true), plain_sgd(), options);
      outputs.push_back(values_of(trainer.forward(batch.inputs)));
      trainer.step(batch, 0.5F);
      found.push_back(parameters_of(trainer.model()));
      EXPECT_EQ(found.back(), found.front()) << devices;
      EXPECT_EQ(outputs.back(), outputs.front()) << devices;
    }
  }
}

OutputsLoss sum_of_twins() {
  return [](const LossCall& call) {
    double loss = 0;
    for (std::size_t i = 0; i < call.outputs.size(); ++i) {
      loss += half_squares(call.outputs[i], call.targets,
                           call.gradients.empty() ? nullptr : &call.gradients[i], call.scale);
    }
    return loss;
  };
}

TEST(DataParallelInputs, MayHaveNamesOnly) {
  NamedTensors inputs;
  inputs["left"] = integers({8, 3}, 1);
  inputs["right"] = integers({8, 3}, 2);
  const std::vector<std::int32_t> targets{0, 1, 2, 3, 0, 1, 2, 3};
  std::vector<std::vector<float>> found;
  for (const int devices : {1, 2, 4}) {
    for (const bool parallel : {false, true}) {
      DataParallelOptions options;
      options.devices = device_list(devices);
      options.parallel_loss = parallel;
      options.outputs_loss = sum_of_twins();
      DataParallel trainer(std::make_unique<ToyTwins>(3), plain_sgd(), options);
      trainer.backward(inputs, targets);
      trainer.update(0.5F);
      found.push_back(parameters_of(trainer.model()));
      EXPECT_EQ(found.back(), found.front()) << devices << parallel;
    }
  }
}

/// Loss and parameter after a step on x = 0, 1, ...
std::pair<double, float> train_inner_loss(int devices, std::size_t samples, bool weighted,
                                          std::optional<std::size_t> first_batch = {}) {
  DataParallelOptions options;
  options.devices = device_list(devices);
  options.first_batch = first_batch;
  options.outputs_loss = mean_of_losses(weighted);
  DataParallel trainer(std::make_unique<ToyInnerLoss>(), plain_sgd(), options);
  NamedTensors inputs;
  inputs["x"] = Tensor({samples});
  for (std::size_t i = 0; i < samples; ++i) inputs["x"].data()[i] = static_cast<float>(i);
  const double loss = trainer.backward(inputs, {});
  trainer.update(1.0F);
  return {loss, parameters_of(trainer.model())[0]};
}

TEST(DataParallelInputs, OfAModelWithTheLossInsideGiveTheMeanOfTheDevicesLosses) {
  const auto [even_loss, even_weight] = train_inner_loss(1, 8, false);
  EXPECT_EQ(even_loss, 3 * 3.5);
  const auto [loss, weight] = train_inner_loss(4, 8, false);
  EXPECT_NEAR(loss, even_loss, 1e-6);
  EXPECT_NEAR(weight, even_weight, 1e-6);

  // 2, 2, 1 of 0 ... 4: means 0.5, 2.5 and 4, whose mean is not the 2 of all.
  const double whole = train_inner_loss(1, 5, false).first;
  const auto [uneven_loss, uneven_weight] = train_inner_loss(4, 5, false);
  EXPECT_EQ(whole, 3 * 2.0);
  EXPECT_NEAR(uneven_loss, 3 * 7.0 / 3, 1e-6);
  EXPECT_NEAR(uneven_weight, 3 - 7.0 / 3, 1e-6);
  EXPECT_NEAR(train_inner_loss(4, 5, true).first, whole, 1e-6) << "weighted by chunks";
  EXPECT_NEAR(train_inner_loss(4, 5, true).second, 3 - 2.0, 1e-6);
  EXPECT_NEAR(train_inner_loss(3, 9, true, 1).first, 3 * 4.0, 1e-6);
  EXPECT_NEAR(train_inner_loss(3, 9, true, 0).first, 3 * 4.0, 1e-6) << "the first device left out";
}

DataParallel make(DataParallelOptions options) {
  return DataParallel(std::make_unique<ToyLinear>(3, 2), plain_sgd(), std::move(options));
}

TEST(DataParallelInputs, ThatAreMissingOrEmptyOrDifferAreRefused) {
  for (const int devices : {1, 2}) {
    DataParallelOptions options;
    options.devices = device_list(devices);
    options.loss = half_squares;
    DataParallel trainer(std::make_unique<ToyLinear>(3, 2), plain_sgd(), options);
    EXPECT_THAT([&] { trainer.backward(NamedTensors(), {}); },
                ThrowsMessage<std::invalid_argument>(HasSubstr("no input")));
    EXPECT_THAT([&] { trainer.step(Batch(), 1.0F); },
                ThrowsMessage<std::invalid_argument>(HasSubstr("empty")));
    EXPECT_THROW(trainer.forward(Tensor({0, 3})), std::invalid_argument);
    NamedTensors differ;
    differ["a"] = Tensor({4, 3});
    differ["b"] = Tensor({5, 3});
    EXPECT_THAT([&] { trainer.backward(differ, {}); },
                ThrowsMessage<std::invalid_argument>(HasSubstr("'a' [4, 3] and 'b' [5, 3]")));
    NamedTensors two;
    two["a"] = two["b"] = Tensor({4, 3});
    EXPECT_THAT([&] { trainer.backward(two, {}); },
                ThrowsMessage<std::invalid_argument>(HasSubstr("NamedModel")))
        << "of a model with one input";
    trainer.step(integer_batch(4, 3, 1), 1.0F);
  }
}

TEST(DataParallelInputs, WithoutTheScatterDimensionAreRefused) {
  DataParallelOptions options;
  options.devices = device_list(2);
  options.dim = 2;
  EXPECT_THAT(
      [&] {
        make(options).forward(Tensor({4, 3}));
      },
      ThrowsMessage<std::invalid_argument>(HasSubstr("no dimension 2")));
}

TEST(DataParallelOptions, NameEachDeviceOnceAndAnOutputDeviceAmongThem) {
  DataParallelOptions options;
  options.devices = {0, 1, 0};
  EXPECT_THAT([&] { make(options); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("device 0 is named twice")));
  options.devices = {0, 1};
  options.output_device = 2;
  EXPECT_THAT([&] { make(options); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("device 2 is none of the 2")));
}

}  // namespace
}  // namespace unisono::train
