// Losses and optimizers against figures worked out by hand.
#include "unisono/train/optimizer.h"

#include <gmock/gmock.h>

#include <cmath>

#include "tests/train/model/layer_bench.h"
#include "unisono/train/loss.h"

namespace unisono::train {
namespace {

using ::testing::Pointwise;

MATCHER_P(FloatNearPair, bound, "") {
  return std::abs(std::get<0>(arg) - std::get<1>(arg)) <= bound;
}

TEST(CrossEntropy, IsTheMeanOfTheRows) {
  Tensor outputs({2, 2});
  outputs.data()[0] = std::log(3.0F);  // row 0: 3/4 and 1/4; row 1: halves
  const std::vector<std::int32_t> targets = {0, 1};
  Tensor gradient;
  EXPECT_NEAR(cross_entropy(outputs, targets, &gradient, 2),
              (std::log(4.0 / 3) + std::log(2.0)) / 2, 1e-7);
  EXPECT_THAT(gradient.values(), Pointwise(FloatNearPair(1e-6F), {-0.25F, 0.25F, 0.5F, -0.5F}));
}

TEST(CrossEntropy, HasTheSlopesOfItsValue) {
  Tensor outputs = random_tensor({3, 4}, 1, 2);
  const std::vector<std::int32_t> targets = {3, 0, 1};
  Tensor gradient;
  cross_entropy(outputs, targets, &gradient);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const float before = outputs.data()[i];
    outputs.data()[i] = before + 1e-3F;
    const double up = cross_entropy(outputs, targets);
    outputs.data()[i] = before - 1e-3F;
    const double down = cross_entropy(outputs, targets);
    outputs.data()[i] = before;
    EXPECT_NEAR(static_cast<double>(gradient.data()[i]), (up - down) / 2e-3, 1e-4);
  }
}

TEST(CrossEntropy, StandsLargeOutputs) {
  Tensor outputs({1, 2});
  outputs.data()[0] = 1e30F;
  const std::vector<std::int32_t> right = {0}, wrong = {1};
  EXPECT_EQ(cross_entropy(outputs, right), 0);
  EXPECT_NEAR(cross_entropy(outputs, wrong), 1e30, 1e24);
}

TEST(CrossEntropy, OfNoRowsIsNothing) {
  Tensor gradient({3});
  EXPECT_EQ(cross_entropy(Tensor({0, 5}), {}, &gradient), 0);
  EXPECT_EQ(gradient.shape(), (Shape{0, 5}));
  EXPECT_EQ(count_correct(Tensor({0, 5}), {}), 0U);
}

TEST(CrossEntropy, RefusesWhatIsNoTarget) {
  const Tensor outputs({1, 3});
  const std::vector<std::int32_t> negative = {-1}, large = {3}, two = {0, 0};
  EXPECT_THROW(cross_entropy(outputs, negative), std::invalid_argument);
  EXPECT_THROW(cross_entropy(outputs, large), std::invalid_argument);
  EXPECT_THROW(cross_entropy(outputs, two), std::invalid_argument);
  EXPECT_THROW(count_correct(outputs, large), std::invalid_argument);
  EXPECT_THROW(cross_entropy(Tensor({0, 3}), two), std::invalid_argument);
}

TEST(CountCorrect, CountsRowsWhoseLargestIsTheTarget) {
  Tensor outputs({3, 2});
  outputs.data()[1] = outputs.data()[2] = outputs.data()[5] = 1;
  const std::vector<std::int32_t> targets = {1, 1, 1};
  EXPECT_EQ(count_correct(outputs, targets), 2U);
}

std::vector<float> stepped(Optimizer& optimizer, std::vector<float> parameters,
                           const std::vector<std::vector<float>>& gradients, float rate) {
  for (const auto& gradient : gradients) optimizer.step(parameters, gradient, rate);
  return parameters;
}

TEST(Sgd, FollowsItsFormula) {
  const auto plain = make_sgd(1, {.momentum = 0});
  EXPECT_FLOAT_EQ(stepped(*plain, {1}, {{2}, {1}}, 0.1F)[0], 0.7F);
  EXPECT_TRUE(plain->state().empty());
  // v: 2, then 0.5 * 2 + 1 = 2.
  const auto heavy = make_sgd(1, {.momentum = 0.5F});
  EXPECT_FLOAT_EQ(stepped(*heavy, {1}, {{2}, {1}}, 0.1F)[0], 0.6F);
  EXPECT_EQ(heavy->steps(), 2U);
  EXPECT_EQ(heavy->state()[0].values[0], 2);
  // 2 + 0.5 * 2 = 3, then 1 + 0.5 * 2 = 2.
  const auto nesterov = make_sgd(1, {.momentum = 0.5F, .nesterov = true});
  EXPECT_FLOAT_EQ(stepped(*nesterov, {1}, {{2}, {1}}, 0.1F)[0], 0.5F);
  // g + 0.5 * 1 = 2.5.
  const auto decayed = make_sgd(1, {.momentum = 0.9F, .weight_decay = 0.5F});
  EXPECT_FLOAT_EQ(stepped(*decayed, {1}, {{2}}, 0.1F)[0], 0.75F);
}

TEST(AdamW, FollowsItsFormula) {
  const auto optimizer = make_adamw(1, {.weight_decay = 0.1F});
  double p = 1, m = 0, v = 0;
  std::vector<float> parameters = {1};
  for (int t = 1; t <= 5; ++t) {
    const double g = 0.5 * t - 1.2;
    optimizer->step(parameters, std::vector<float>{static_cast<float>(g)}, 0.01F);
    p *= 1 - 0.01 * 0.1;
    m = 0.9 * m + 0.1 * g;
    v = 0.999 * v + 0.001 * g * g;
    p -= 0.01 * (m / (1 - std::pow(0.9, t))) / (std::sqrt(v / (1 - std::pow(0.999, t))) + 1e-8);
    EXPECT_NEAR(static_cast<double>(parameters[0]), p, 1e-5);
  }
}

/// ZeRO-1 relies on it: whoever owns a range steps it to the same bits.
TEST(Optimizers, StepSlicesToTheBitsOfTheWhole) {
  const std::size_t count = 103;
  const Tensor start = random_tensor({count}, 1), gradient = random_tensor({count}, 2);
  const std::vector<OptimizerFactory> factories = {
      [](std::size_t n) { return make_sgd(n, {.weight_decay = 0.01F}); },
      [](std::size_t n) { return make_sgd(n, {.nesterov = true}); },
      [](std::size_t n) { return make_adamw(n); }};
  for (const auto& factory : factories) {
    Tensor whole = start, sliced = start;
    const auto one = factory(count);
    for (int step = 0; step < 3; ++step) one->step(whole.values(), gradient.values(), 0.1F);
    for (std::size_t at = 0; at < count; at += 37) {
      const std::size_t size = std::min<std::size_t>(37, count - at);
      const auto part = factory(size);
      for (int step = 0; step < 3; ++step) {
        part->step(sliced.values().subspan(at, size), gradient.values().subspan(at, size), 0.1F);
      }
    }
    EXPECT_TRUE(std::equal(whole.data(), whole.data() + count, sliced.data()));
  }
}

TEST(Optimizers, ContinueFromStateAndSteps) {
  const auto first = make_adamw(2), second = make_adamw(2);
  std::vector<float> parameters = {1, -1};
  const std::vector<float> gradient = {0.3F, 0.1F};
  first->step(parameters, gradient, 0.1F);
  std::vector<float> other = parameters;
  auto from = first->state(), to = second->state();
  for (std::size_t i = 0; i < from.size(); ++i) {
    EXPECT_EQ(from[i].name, to[i].name);
    std::copy(from[i].values.begin(), from[i].values.end(), to[i].values.begin());
  }
  second->set_steps(first->steps());
  first->step(parameters, gradient, 0.1F);
  second->step(other, gradient, 0.1F);
  EXPECT_EQ(parameters, other);
}

TEST(Optimizers, RefuseAnotherCount) {
  std::vector<float> two(2), three(3);
  EXPECT_THROW(make_sgd(3)->step(two, three, 0.1F), std::invalid_argument);
  EXPECT_THROW(make_adamw(3)->step(three, two, 0.1F), std::invalid_argument);
  EXPECT_THROW(make_sgd(1, {.momentum = 0, .nesterov = true}), std::invalid_argument);
}

}  // namespace
}  // namespace unisono::train
