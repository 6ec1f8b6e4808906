// The ready models: slopes, determinism, replicas, what a pass reports, and that they learn.
#include "unisono/train/models.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "tests/train/model/layer_bench.h"
#include "unisono/train/loss.h"
#include "unisono/train/optimizer.h"

namespace unisono::train {
namespace {

struct Problem {
  std::unique_ptr<Model> model;
  Tensor input;
  std::vector<std::int32_t> targets;
};

/// Small ones with every layer in them.
std::vector<Problem> problems() {
  std::vector<Problem> all;
  all.push_back({make_mlp({.widths = {6, 12, 8, 3}}), random_tensor({8, 6}, 1), {}});
  all.push_back({make_cnn({.channels = 2, .size = 8, .filters = {4, 5}, .classes = 3}),
                 random_tensor({8, 128}, 2),
                 {}});
  Tensor tokens({4, 6});
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens.data()[i] = static_cast<float>(i * i % 7);
  all.push_back({make_gpt({.vocabulary = 7, .context = 6, .width = 12, .heads = 3}), tokens, {}});
  for (Problem& problem : all) {
    const bool text = &problem == &all.back();
    for (std::size_t i = 0; i < (text ? 24 : 8); ++i) {
      problem.targets.push_back(static_cast<std::int32_t>(text ? (i + 1) * (i + 1) % 7 : i % 3));
    }
  }
  return all;
}

double loss_of(Problem& problem) {
  Pass pass{.update_buffers = false};
  return cross_entropy(problem.model->forward(problem.input, pass), problem.targets);
}

/// Along one direction per parameter tensor, for a kink of one unit hardly shows in a sum.
TEST(Models, HaveTheSlopesOfTheirLoss) {
  for (Problem& problem : problems()) {
    Model& model = *problem.model;
    Pass pass{.update_buffers = false};
    Tensor gradient;
    cross_entropy(model.forward(problem.input, pass), problem.targets, &gradient);
    model.backward(gradient, pass);
    Random random(5);
    for (std::size_t p = 0; p < model.parameters().entries().size(); ++p) {
      const auto values = model.parameters()[static_cast<int>(p)];
      const auto slopes = model.gradients()[static_cast<int>(p)];
      const std::vector<float> before(values.begin(), values.end());
      std::vector<float> direction(values.size());
      double expected = 0, norm = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        // With the gradient's signs the slopes add up instead of cancelling.
        direction[i] = std::copysign(std::abs(random.symmetric(1)), slopes[i]);
        expected += static_cast<double>(direction[i]) * static_cast<double>(slopes[i]);
        norm += static_cast<double>(direction[i]) * static_cast<double>(direction[i]);
      }
      const auto step = static_cast<float>(2e-3 / std::sqrt(norm));
      const auto moved = [&](float by) {
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = before[i] + by * direction[i];
        return loss_of(problem);
      };
      const double measured = (moved(step) - moved(-step)) / (2 * static_cast<double>(step));
      std::copy(before.begin(), before.end(), values.begin());
      EXPECT_NEAR(measured, expected, 0.02 * std::abs(expected) + 2e-4)
          << model.describe() << " " << model.parameters().entries()[p].name;
    }
  }
}

TEST(Models, ReportUseAndReadinessOncePerParameter) {
  for (Problem& problem : problems()) {
    const std::size_t count = problem.model->parameters().entries().size();
    Pass pass;
    pass.used.assign(count, 0);
    std::vector<int> ready(count);
    std::vector<float> final(problem.model->gradients().values().size());
    pass.gradient_ready = [&](int p) {
      ++ready[static_cast<std::size_t>(p)];
      const auto values = problem.model->gradients()[p];
      const std::size_t offset =
          problem.model->gradients().entries()[static_cast<std::size_t>(p)].offset;
      std::copy(values.begin(), values.end(), final.begin() + static_cast<std::ptrdiff_t>(offset));
    };
    Tensor gradient;
    cross_entropy(problem.model->forward(problem.input, pass), problem.targets, &gradient);
    EXPECT_THAT(pass.used, ::testing::Each(1));
    EXPECT_THAT(ready, ::testing::Each(0));
    problem.model->backward(gradient, pass);
    EXPECT_THAT(ready, ::testing::Each(1)) << problem.model->describe();
    // What was there when it was called ready is what is there in the end.
    EXPECT_TRUE(std::ranges::equal(final, problem.model->gradients().values()));
  }
}

TEST(Models, AddTheirGradientsToWhatIsThere) {
  for (Problem& problem : problems()) {
    Tensor gradient;
    std::vector<float> once;
    for (int i = 0; i < 2; ++i) {
      Pass pass{.update_buffers = false};
      cross_entropy(problem.model->forward(problem.input, pass), problem.targets, &gradient);
      problem.model->backward(gradient, pass);
      const auto values = problem.model->gradients().values();
      if (i == 0) once.assign(values.begin(), values.end());
    }
    for (std::size_t i = 0; i < once.size(); ++i) {
      EXPECT_NEAR(problem.model->gradients().values()[i], 2 * once[i], 1e-5);
    }
  }
}

TEST(Models, LearnASmallProblem) {
  for (Problem& problem : problems()) {
    Model& model = *problem.model;
    const auto optimizer = make_adamw(model.parameters().values().size());
    const double before = loss_of(problem);
    for (std::size_t step = 0; step < 150; ++step) {
      Pass pass{.step = step};
      std::ranges::fill(model.gradients().values(), 0.0F);
      Tensor gradient;
      cross_entropy(model.forward(problem.input, pass), problem.targets, &gradient);
      model.backward(gradient, pass);
      optimizer->step(model.parameters().values(), model.gradients().values(), 0.01F);
    }
    EXPECT_LT(loss_of(problem), 0.1 * before) << model.describe();
    Pass pass{.training = false};
    EXPECT_GE(count_correct(model.forward(problem.input, pass), problem.targets),
              problem.targets.size() * 9 / 10)
        << model.describe();
  }
}

TEST(Models, ComputeTheSameBitsAgainInReplicasOfTheSameValues) {
  for (Problem& problem : problems()) {
    const auto replica = problem.model->clone();
    EXPECT_TRUE(
        std::ranges::equal(replica->parameters().values(), problem.model->parameters().values()));
    EXPECT_NE(replica->parameters().values().data(), problem.model->parameters().values().data());
    const Tensor shift({977});  // other addresses
    for (Model* model : {problem.model.get(), replica.get()}) {
      Pass pass;
      Tensor gradient;
      cross_entropy(model->forward(Tensor(problem.input), pass), problem.targets, &gradient);
      model->backward(gradient, pass);
    }
    EXPECT_TRUE(
        std::ranges::equal(replica->gradients().values(), problem.model->gradients().values()));
    EXPECT_TRUE(std::ranges::equal(replica->buffers().values(), problem.model->buffers().values()));
  }
}

TEST(Models, StartFromTheirSeed) {
  const auto one = make_mlp({.seed = 1}), again = make_mlp({.seed = 1}),
             two = make_mlp({.seed = 2});
  EXPECT_TRUE(std::ranges::equal(one->parameters().values(), again->parameters().values()));
  EXPECT_FALSE(std::ranges::equal(one->parameters().values(), two->parameters().values()));
  const auto weights = one->parameters()[0];
  const auto [low, high] = std::ranges::minmax(weights);
  const float range = 1 / std::sqrt(784.0F);
  EXPECT_GE(low, -range);
  EXPECT_LE(high, range);
  EXPECT_LT(low, -0.99F * range);
  EXPECT_GT(high, 0.99F * range);
}

TEST(Models, SayWhatTheyAre) {
  EXPECT_EQ(make_mlp()->describe(), "mlp 784-256-10");
  EXPECT_EQ(make_mlp()->parameters().values().size(), 203530U);
  EXPECT_EQ(make_cnn()->describe(), "cnn 28x28x1 16-32 10");
  EXPECT_EQ(make_gpt({.vocabulary = 96})->describe(),
            "gpt 2 layers, 64 wide, 4 heads, context 64, vocabulary 96");
  EXPECT_EQ(make_mlp()->parameters().entries()[2].name, "layers.2.weight");
}

TEST(Models, TakeAnEmptyBatchAndMoreDimensions) {
  for (Problem& problem : problems()) {
    Pass pass;
    const Tensor output = problem.model->forward(Tensor({0, problem.input.row_size()}), pass);
    EXPECT_TRUE(output.empty());
    problem.model->backward(output, pass);
    EXPECT_THAT(problem.model->gradients().values(), ::testing::Each(0.0F));
  }
  Pass pass;
  EXPECT_EQ(make_cnn()->forward(Tensor({3, 1, 28, 28}), pass).shape(), (Shape{3, 10}));
}

TEST(Models, RefuseOtherInputsAndABackwardWithoutForward) {
  const auto model = make_mlp({.widths = {4, 2}});
  Pass pass;
  EXPECT_THROW(model->forward(Tensor({2, 5}), pass), std::invalid_argument);
  EXPECT_THROW(model->forward(Tensor(Shape{}), pass), std::invalid_argument);
  EXPECT_THROW(model->backward(Tensor({2, 2}), pass), std::invalid_argument);
  Pass evaluation{.training = false};
  model->forward(Tensor({2, 4}), evaluation);
  EXPECT_THROW(model->backward(Tensor({2, 2}), pass), std::invalid_argument);
  model->forward(Tensor({2, 4}), pass);
  EXPECT_THROW(model->backward(Tensor({2, 3}), pass), std::invalid_argument);
}

TEST(Models, RefuseImpossibleOptions) {
  EXPECT_THROW(make_mlp({.widths = {4}}), std::invalid_argument);
  EXPECT_THROW(make_mlp({.widths = {4, 0, 2}}), std::invalid_argument);
  EXPECT_THROW(make_cnn({.size = 2, .filters = {2, 2}}), std::invalid_argument);
  EXPECT_THROW(make_gpt({.width = 10, .heads = 3}), std::invalid_argument);
  EXPECT_THROW(make_gpt({.vocabulary = 0}), std::invalid_argument);
}

}  // namespace
}  // namespace unisono::train
