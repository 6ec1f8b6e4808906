// Layer norm, embeddings and losses, against plain loops in double.
#include <cmath>

#include "tests/train/cuda/fixture.h"

namespace unisono::test {
namespace {

class RowCalls : public testing::Test {
 protected:
  const std::shared_ptr<train::Backend> backend = make_backend();
};

void check_layer_norm(train::Backend& backend, std::size_t rows, std::size_t features) {
  const train::LayerNormalisation shape{rows, features, 1e-5F};
  Floats x = random_values(rows * features, 1);
  for (float& value : x) value += 2;
  const Floats dy = random_values(x.size(), 2), weight = random_values(features, 3),
               bias = random_values(features, 4), before = random_values(2 * features, 5);
  Doubles y(x.size()), dx(x.size()), gradients = widened(before);
  const auto n = static_cast<double>(features);
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t first = row * features;
    double mean = 0, variance = 0, level = 0, along = 0;
    const auto at = [&](std::size_t i) { return static_cast<double>(x[first + i]); };
    for (std::size_t i = 0; i < features; ++i) mean += at(i) / n;
    for (std::size_t i = 0; i < features; ++i) variance += std::pow(at(i) - mean, 2) / n;
    const double inverse = 1 / std::sqrt(variance + 1e-5);
    const auto slope = [&](std::size_t i) {
      return static_cast<double>(dy[first + i]) * static_cast<double>(weight[i]);
    };
    for (std::size_t i = 0; i < features; ++i) {
      const double normal = (at(i) - mean) * inverse, dyi = static_cast<double>(dy[first + i]);
      y[first + i] = normal * static_cast<double>(weight[i]) + static_cast<double>(bias[i]);
      gradients[i] += dyi * normal;
      gradients[features + i] += dyi;
      level += slope(i) / n;
      along += slope(i) * (at(i) - mean) / n * inverse * inverse;
    }
    for (std::size_t i = 0; i < features; ++i) {
      dx[first + i] = (slope(i) - level - (at(i) - mean) * along) * inverse;
    }
  }
  const DeviceFloats inputs(backend, x), slopes(backend, dy), weights(backend, weight),
      biases(backend, bias);
  // A row of one feature has variance 0, and what is left of it is multiplied by 316.
  const double tolerance = 1e-4;
  expect_near(computed(backend, unwritten(x.size()),
                       [&](float* to) { backend.layer_norm(shape, inputs, weights, biases, to); }),
              y, tolerance);
  expect_near(computed(backend, joined(before, unwritten(x.size())),
                       [&](float* to) {
                         backend.layer_norm_gradient(shape, inputs, slopes, weights, to,
                                                     to + features, to + 2 * features);
                       }),
              joined(gradients, dx), tolerance);
}

TEST_F(RowCalls, LayerNorm) {
  check_layer_norm(*backend, 0, 7);
  check_layer_norm(*backend, 1, 1);
  check_layer_norm(*backend, 7, 33);
  check_layer_norm(*backend, 333, 31);
}

TEST_F(RowCalls, EmbeddingsAddEachTokensRowsInOrder) {
  // A context longer than the rows, tokens that repeat, tokens that no row has.
  for (const train::TokenRows& shape :
       {train::TokenRows{0, 4, 3, 5}, train::TokenRows{1, 4, 3, 5}, train::TokenRows{3, 7, 5, 11},
        train::TokenRows{62, 31, 33, 9}}) {
    std::vector<std::uint32_t> tokens;
    for (std::size_t r = 0; r < shape.rows; ++r) {
      tokens.push_back(static_cast<std::uint32_t>(r * r % shape.vocabulary));
    }
    const std::size_t table = shape.vocabulary * shape.features;
    const Floats token_table = random_values(table, 1);
    const Floats position_table = random_values(shape.context * shape.features, 2);
    const Floats dy = random_values(shape.rows * shape.features, 3);
    const Floats before = random_values(table + position_table.size(), 4);
    Floats y, gradients = before;  // float: the order of additions is part of the contract
    for (std::size_t i = 0; i < dy.size(); ++i) {
      const std::size_t row = i / shape.features, at = i % shape.features;
      const std::size_t token = tokens[row] * shape.features + at;
      const std::size_t position = row % shape.context * shape.features + at;
      y.push_back(token_table[token] + position_table[position]);
      gradients[token] += dy[i];
      gradients[table + position] += dy[i];
    }
    const DeviceFloats of_tokens(*backend, token_table), of_positions(*backend, position_table),
        slopes(*backend, dy);
    // The tokens may go when the call returns.
    const auto call = [&](auto&& with_tokens) {
      std::vector<std::uint32_t> passing = tokens;
      with_tokens(std::span<const std::uint32_t>(passing));
      passing.assign(passing.size(), 0xffffffff);
    };
    expect_near(computed(*backend, unwritten(y.size()),
                         [&](float* to) {
                           call([&](auto passing) {
                             backend->embed(shape, passing, of_tokens, of_positions, to);
                           });
                         }),
                widened(y), 0);
    expect_near(computed(*backend, before,
                         [&](float* to) {
                           call([&](auto passing) {
                             backend->embed_gradient(shape, passing, slopes, to, to + table);
                           });
                         }),
                widened(gradients), 0);
  }
}

TEST_F(RowCalls, CrossEntropyAndRightAnswers) {
  for (const auto& [rows, classes] :
       std::vector<std::pair<std::size_t, std::size_t>>{{0, 3}, {1, 1}, {7, 10}, {333, 31}}) {
    Floats logits = random_values(rows * classes, 1);
    for (float& value : logits) value = std::round(value * 8) * 10;  // equal ones, and far apart
    std::vector<std::int32_t> targets;
    double loss = 0;
    std::size_t correct = 0;
    Doubles gradient;
    for (std::size_t row = 0; row < rows; ++row) {
      targets.push_back(static_cast<std::int32_t>(row * 7 % classes));
      const auto at = [&logits, from = row * classes](std::size_t c) {
        return static_cast<double>(logits[from + c]);
      };
      std::size_t best = 0;
      for (std::size_t c = 1; c < classes; ++c) best = at(c) > at(best) ? c : best;
      double sum = 0;
      for (std::size_t c = 0; c < classes; ++c) sum += std::exp(at(c) - at(best));
      const auto target = static_cast<std::size_t>(targets.back());
      loss += std::log(sum) - (at(target) - at(best));
      correct += best == target ? 1 : 0;
      for (std::size_t c = 0; c < classes; ++c) {
        gradient.push_back((std::exp(at(c) - at(best)) / sum - (c == target ? 1 : 0)) * 0.25);
      }
    }
    const DeviceFloats outputs(*backend, logits);
    std::vector<double> losses;
    expect_near(
        computed(*backend, unwritten(logits.size()),
                 [&, classes = classes](float* to) {
                   losses.push_back(backend->cross_entropy(targets, classes, outputs, 0.25, to));
                 }),
        gradient, 1e-6);
    losses.push_back(backend->cross_entropy(targets, classes, outputs, 0.25, nullptr));
    for (const double each : losses) {
      EXPECT_EQ(each, losses.front());
      EXPECT_NEAR(each, loss, 1e-9 * std::max(1.0, loss));
    }
    EXPECT_EQ(backend->count_correct(targets, classes, outputs), correct);
  }
}

}  // namespace
}  // namespace unisono::test
