// The models and optimizers against figures that PyTorch gave for the same parameters and inputs;
// make_torch_fixture.py writes them.
#include <gmock/gmock.h>

#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "tests/train/model/layer_bench.h"
#include "unisono/train/loss.h"
#include "unisono/train/models.h"
#include "unisono/train/optimizer.h"

namespace unisono::train {
namespace {

using Fixture = std::map<std::string, std::vector<double>>;

const Fixture& fixture() {
  static const Fixture figures = [] {
    Fixture result;
    std::ifstream file(UNISONO_TORCH_FIXTURE);
    std::string line;
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::string name;
      words >> name;
      if (name == "#") continue;
      double value = 0;
      while (words >> value) result[name].push_back(value);
    }
    return result;
  }();
  return figures;
}

/// As in make_torch_fixture.py.
void fill_pattern(std::span<float> values, std::size_t seed, double scale, float offset = 0) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double unit = static_cast<double>((i * 37 + seed * 101) % 1009) / 1009 - 0.5;
    values[i] = static_cast<float>(unit * scale) + offset;
  }
}

void expect_figures(const std::string& name, std::span<const float> measured) {
  ASSERT_TRUE(fixture().contains(name)) << name << " is not in " << UNISONO_TORCH_FIXTURE;
  const auto& expected = fixture().at(name);
  ASSERT_EQ(measured.size(), expected.size()) << name;
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(measured[i]), expected[i], 2e-5 * largest + 1e-7)
        << name << "[" << i << "]";
  }
}

void compare(const std::string& name, Model& model, const Tensor& inputs,
             std::span<const std::int32_t> targets) {
  for (std::size_t p = 0; p < model.parameters().entries().size(); ++p) {
    const bool vector = model.parameters().entries()[p].shape.size() == 1;
    fill_pattern(model.parameters()[static_cast<int>(p)], p, 0.6, vector ? 0.4F : 0);
  }
  Pass pass;
  Tensor gradient;
  const double loss = cross_entropy(model.forward(inputs, pass), targets, &gradient);
  model.backward(gradient, pass);
  ASSERT_TRUE(fixture().contains(name + ".loss"));
  EXPECT_NEAR(loss, fixture().at(name + ".loss")[0], 1e-5);
  for (std::size_t p = 0; p < model.gradients().entries().size(); ++p) {
    expect_figures(name + ".gradient." + std::to_string(p), model.gradients()[static_cast<int>(p)]);
  }
  for (std::size_t b = 0; b < model.buffers().entries().size(); ++b) {
    expect_figures(name + ".buffer." + std::to_string(b), model.buffers()[static_cast<int>(b)]);
  }
}

std::vector<std::int32_t> classes(std::size_t count, std::function<std::size_t(std::size_t)> of) {
  std::vector<std::int32_t> result;
  for (std::size_t i = 0; i < count; ++i) result.push_back(static_cast<std::int32_t>(of(i)));
  return result;
}

TEST(Torch, AgreesOnTheMlp) {
  Tensor inputs({8, 6});
  fill_pattern(inputs.values(), 50, 2);
  compare("mlp", *make_mlp({.widths = {6, 12, 8, 3}}), inputs,
          classes(8, [](std::size_t i) { return i % 3; }));
}

TEST(Torch, AgreesOnTheCnn) {
  Tensor inputs({8, 2, 8, 8});
  fill_pattern(inputs.values(), 50, 2);
  compare("cnn", *make_cnn({.channels = 2, .size = 8, .filters = {4, 5}, .classes = 3}), inputs,
          classes(8, [](std::size_t i) { return i % 3; }));
}

TEST(Torch, AgreesOnTheGpt) {
  Tensor inputs({4, 6});
  for (std::size_t i = 0; i < 24; ++i) inputs.data()[i] = static_cast<float>(i * i % 7);
  compare("gpt", *make_gpt({.vocabulary = 7, .context = 6, .layers = 2, .width = 12, .heads = 3}),
          inputs, classes(24, [](std::size_t i) { return (i + 1) * (i + 1) % 7; }));
}

void compare_steps(const std::string& name, Optimizer& optimizer) {
  std::vector<float> parameters(20), gradients(20);
  fill_pattern(parameters, 60, 2);
  for (std::size_t step = 0; step < 6; ++step) {
    fill_pattern(gradients, 70 + step, 1);
    optimizer.step(parameters, gradients, 0.1F);
  }
  expect_figures("optimizer." + name, parameters);
}

TEST(Torch, AgreesOnTheOptimizers) {
  compare_steps("sgd", *make_sgd(20, {.momentum = 0}));
  compare_steps("momentum", *make_sgd(20, {.momentum = 0.9F, .weight_decay = 0.05F}));
  compare_steps("nesterov", *make_sgd(20, {.momentum = 0.8F, .nesterov = true}));
  compare_steps("adamw", *make_adamw(20, {.weight_decay = 0.02F}));
}

}  // namespace
}  // namespace unisono::train
