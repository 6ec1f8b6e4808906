// Every layer's backward against finite differences of its forward, and what each promises besides.
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/train/model/layer_bench.h"

namespace unisono::train {
namespace {

using ::testing::ElementsAre;

/// Values at least `gap` apart from zero and from each other: no kink lies within a step.
Tensor spread_tensor(Shape shape, float gap) {
  Tensor tensor(std::move(shape));
  const std::size_t size = tensor.size();
  for (std::size_t i = 0; i < size; ++i) {
    // 7 is prime to the sizes used here, so that this is a permutation.
    const auto place = static_cast<float>(i * 7 % size) - static_cast<float>(size) / 2 + 0.25F;
    tensor.data()[i] = place * gap;
  }
  return tensor;
}

TEST(Layers, DenseHasTheSlopesOfItsForward) {
  LayerBench(make_dense(5, 3)).check_gradients(random_tensor({4, 5}, 1));
  LayerBench(make_dense(5, 3, false)).check_gradients(random_tensor({4, 5}, 1));
}

TEST(Layers, ReluHasTheSlopesOfItsForward) {
  LayerBench(make_relu()).check_gradients(spread_tensor({4, 5}, 0.1F));
}

TEST(Layers, GeluHasTheSlopesOfItsForward) {
  LayerBench(make_gelu()).check_gradients(random_tensor({4, 25}, 2, 4));
}

TEST(Layers, Conv2dHasTheSlopesOfItsForward) {
  const Image image{2, 5, 4};
  LayerBench(make_conv2d(image, 3, 3, 1)).check_gradients(random_tensor({2, image.size()}, 3));
  LayerBench(make_conv2d(image, 2, 2, 0)).check_gradients(random_tensor({2, image.size()}, 3));
  LayerBench(make_conv2d(image, 2, 3, 2)).check_gradients(random_tensor({2, image.size()}, 3));
  LayerBench(make_conv2d({1, 1, 1}, 2, 3, 1)).check_gradients(random_tensor({3, 1}, 3));
  LayerBench(make_conv2d({1, 1, 1}, 2, 5, 2)).check_gradients(random_tensor({2, 1}, 3));
  LayerBench(make_conv2d({2, 2, 1}, 1, 7, 3)).check_gradients(random_tensor({2, 4}, 3));
  LayerBench(make_conv2d({1, 1, 3}, 2, 4, 3)).check_gradients(random_tensor({2, 3}, 3));
  EXPECT_THROW(make_conv2d(image, 0, 3, 1), std::invalid_argument);
  EXPECT_THROW(make_conv2d(image, 2, 9, 1), std::invalid_argument);
}

void expect_sums_over_windows(const Image& image, std::size_t kernel, std::size_t padding) {
  constexpr std::size_t kFilters = 3;
  LayerBench bench(make_conv2d(image, kFilters, kernel, padding));
  const Tensor input = random_tensor({2, image.size()}, 4);
  const Tensor output = bench.forward(input);
  const auto weight = bench.parameters[0], bias = bench.parameters[1];
  const std::size_t width = image.width + 2 * padding - kernel + 1;
  const std::size_t plane = (image.height + 2 * padding - kernel + 1) * width;
  const std::size_t taps = image.channels * kernel * kernel;
  ASSERT_EQ(output.size(), 2 * kFilters * plane);
  for (std::size_t i = 0; i < output.size(); ++i) {
    const std::size_t x = i % width, y = i % plane / width, f = i / plane % kFilters;
    const float* of_sample = input.data() + i / (plane * kFilters) * image.size();
    double expected = static_cast<double>(bias[f]);
    for (std::size_t tap = 0; tap < taps; ++tap) {
      const std::size_t c = tap / (kernel * kernel);
      const std::size_t row = y + tap / kernel % kernel, column = x + tap % kernel;
      if (row < padding || row >= padding + image.height) continue;
      if (column < padding || column >= padding + image.width) continue;
      const float value =
          of_sample[c * image.plane() + (row - padding) * image.width + column - padding];
      expected += static_cast<double>(weight[f * taps + tap]) * static_cast<double>(value);
    }
    EXPECT_NEAR(static_cast<double>(output.data()[i]), expected, 1e-5) << "output " << i;
  }
}

TEST(Layers, Conv2dIsTheSumOverItsWindows) {
  expect_sums_over_windows({2, 4, 5}, 3, 1);
  expect_sums_over_windows({2, 4, 5}, 2, 0);
  // Some taps are outside of the image everywhere.
  expect_sums_over_windows({1, 1, 1}, 5, 2);
  expect_sums_over_windows({2, 2, 1}, 7, 3);
  expect_sums_over_windows({1, 1, 3}, 4, 3);
}

TEST(Layers, MaxPoolHasTheSlopesOfItsForward) {
  LayerBench(make_max_pool({2, 4, 4}, 2)).check_gradients(spread_tensor({2, 32}, 0.1F));
  LayerBench(make_max_pool({1, 5, 8}, 3)).check_gradients(spread_tensor({1, 40}, 0.1F));
}

TEST(Layers, MaxPoolGivesTiesToTheFirst) {
  LayerBench bench(make_max_pool({1, 2, 2}, 2));
  Saved saved;
  const Tensor input({1, 4});
  Tensor gradient({1, 1});
  gradient.data()[0] = 3;
  const Tensor result = bench.backward(input, gradient, saved);
  EXPECT_THAT(result.values(), ElementsAre(3, 0, 0, 0));
}

TEST(Layers, BatchNormHasTheSlopesOfItsForward) {
  LayerBench(make_batch_norm({3, 2, 2})).check_gradients(random_tensor({4, 12}, 5));
  LayerBench(make_batch_norm({5, 1, 1})).check_gradients(random_tensor({6, 5}, 6));
}

TEST(Layers, LayerNormHasTheSlopesOfItsForward) {
  LayerBench(make_layer_norm(17)).check_gradients(random_tensor({3, 17}, 7));
}

TEST(Layers, EmbeddingHasTheSlopesOfItsForward) {
  Tensor tokens({2, 3});
  const float ids[] = {0, 4, 4, 2, 0, 1};
  std::copy(std::begin(ids), std::end(ids), tokens.data());
  LayerBench(make_embedding(5, 3, 4)).check_gradients(tokens, 1e-2, false);
}

TEST(Layers, EmbeddingRefusesWhatIsNoToken) {
  LayerBench bench(make_embedding(5, 1, 2));
  for (const float id : {-1.0F, 5.0F, 0.5F, NAN, 1e30F}) {
    Tensor token({1, 1});
    token.data()[0] = id;
    EXPECT_THROW(bench.forward(token), std::invalid_argument) << id;
  }
}

TEST(Layers, CausalAttentionHasTheSlopesOfItsForward) {
  LayerBench(make_causal_attention(5, 4, 2)).check_gradients(random_tensor({10, 12}, 8, 2));
}

TEST(Layers, CausalAttentionNeverLooksAhead) {
  LayerBench bench(make_causal_attention(6, 4, 2));
  Tensor input = random_tensor({6, 12}, 9);
  const Tensor before = bench.forward(input);
  for (std::size_t i = 0; i < 12; ++i) input.data()[4 * 12 + i] += 1;
  const Tensor after = bench.forward(input);
  EXPECT_TRUE(std::equal(before.data(), before.data() + 16, after.data()));
  EXPECT_NE(before.data()[16], after.data()[16]);
}

TEST(Layers, ResidualHasTheSlopesOfItsForward) {
  LayerBench(make_residual({make_dense(4, 6), make_gelu(), make_dense(6, 4)}))
      .check_gradients(random_tensor({3, 4}, 10));
  LayerBench(make_residual({make_dense(4, 4)})).check_gradients(random_tensor({3, 4}, 10));
  EXPECT_THROW(make_residual({}), std::invalid_argument);
}

TEST(Layers, DropoutHasTheSlopesOfItsForward) {
  LayerBench(make_dropout(0.4F, 1)).check_gradients(random_tensor({4, 25}, 11));
}

TEST(Layers, DropoutRepeatsItselfForOneKeyAndDiffersForAnother) {
  LayerBench bench(make_dropout(0.5F, 1)), other(make_dropout(0.5F, 2));
  Tensor ones({1, 1000});
  std::fill(ones.values().begin(), ones.values().end(), 1.0F);
  const auto dropped = [&ones](LayerBench& with, Pass pass) {
    with.pass = std::move(pass);
    const Tensor output = with.forward(ones);
    return std::vector<float>(output.values().begin(), output.values().end());
  };
  const auto first = dropped(bench, {.seed = 1, .step = 2, .micro_batch = 3});
  EXPECT_EQ(first, dropped(bench, {.seed = 1, .step = 2, .micro_batch = 3}));
  EXPECT_NE(first, dropped(bench, {.seed = 2, .step = 2, .micro_batch = 3}));
  EXPECT_NE(first, dropped(bench, {.seed = 1, .step = 3, .micro_batch = 3}));
  EXPECT_NE(first, dropped(bench, {.seed = 1, .step = 2, .micro_batch = 4}));
  EXPECT_NE(first, dropped(other, {.seed = 1, .step = 2, .micro_batch = 3}));
  EXPECT_NEAR(std::count(first.begin(), first.end(), 0.0F), 500, 80);
  EXPECT_NEAR(std::count(first.begin(), first.end(), 2.0F), 500, 80);
  EXPECT_THAT(dropped(bench, {.training = false}), ::testing::Each(1.0F));
  EXPECT_THROW(make_dropout(1, 0), std::invalid_argument);
}

TEST(Layers, TakeAnEmptyBatch) {
  const Image image{2, 4, 4};
  const std::vector<std::pair<std::shared_ptr<Layer>, std::size_t>> layers = {
      {make_dense(3, 2), 3},
      {make_relu(), 3},
      {make_gelu(), 3},
      {make_conv2d(image, 2, 3, 1), image.size()},
      {make_max_pool(image, 2), image.size()},
      {make_batch_norm(image), image.size()},
      {make_layer_norm(3), 3},
      {make_embedding(3, 2, 2), 2},
      {make_causal_attention(2, 2, 1), 6},
      {make_dropout(0.5F, 0), 3},
      {make_residual({make_dense(3, 3)}), 3}};
  for (const auto& [layer, features] : layers) {
    LayerBench bench(layer);
    const Tensor input({0, features});
    std::size_t ready = 0;
    bench.pass.gradient_ready = [&ready](int) { ++ready; };
    Saved saved;
    const Tensor output = bench.forward(input, &saved);
    EXPECT_TRUE(output.empty());
    EXPECT_TRUE(bench.backward(input, output, saved).empty());
    EXPECT_EQ(ready, bench.parameters.entries().size());
    EXPECT_THAT(bench.gradients.values(), ::testing::Each(0.0F));
  }
}

}  // namespace
}  // namespace unisono::train
