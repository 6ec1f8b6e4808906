// A layer alone with arenas of its own, and its gradients against differences of the loss. For the
// tests of this folder; the loss is a fixed random weighting of the output.
#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "train/model/layers.h"

namespace unisono::train {

inline Tensor random_tensor(Shape shape, std::uint64_t seed, float range = 1) {
  Tensor tensor(std::move(shape));
  Random random(seed);
  for (float& value : tensor.values()) value = random.symmetric(range);
  return tensor;
}

inline double weighted_sum(const Tensor& values, const Tensor& weights) {
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    sum += static_cast<double>(values.data()[i]) * static_cast<double>(weights.data()[i]);
  }
  return sum;
}

/// |measured - expected| within `tolerance` of the larger, or of 1e-2 of `scale` near zero.
inline void expect_close(double measured, double expected, double scale, double tolerance,
                         const std::string& what) {
  const double size = std::max({std::abs(measured), std::abs(expected), 1e-2 * scale});
  EXPECT_LE(std::abs(measured - expected), tolerance * size)
      << what << ": " << measured << " is not " << expected;
}

struct LayerBench {
  std::shared_ptr<Layer> layer;
  Arena parameters, gradients, buffers;
  Pass pass;

  explicit LayerBench(std::shared_ptr<Layer> made) : layer(std::move(made)) {
    Declaration declaration(parameters, buffers, "");
    layer->declare(declaration);
    for (const auto& entry : parameters.entries()) gradients.add(entry.name, entry.shape);
    parameters.allocate();
    gradients.allocate();
    buffers.allocate();
    Random random(7);
    layer->initialise(parameters, buffers, random);
    // Ones and zeros hide mistakes.
    for (float& value : parameters.values()) value += random.symmetric(0.3F);
  }

  Call call() { return {backend_of(parameters), parameters, gradients, buffers, pass, true}; }
  Tensor forward(const Tensor& input, Saved* saved = nullptr) {
    Call shared = call();
    return layer->forward(input, shared, saved);
  }
  Tensor backward(const Tensor& input, const Tensor& gradient, Saved& saved) {
    Call shared = call();
    return layer->backward(input, gradient, shared, saved);
  }

  /// The loss' slope for each value by central differences, against `gradient`.
  void check(std::span<float> values, std::span<const float> gradient, const Tensor& input,
             const Tensor& weights, double tolerance, const std::string& what) {
    const float step = 1e-2F;
    double scale = 0;
    for (const float slope : gradient)
      scale = std::max(scale, std::abs(static_cast<double>(slope)));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float before = values[i];
      const float above = before + step, below = before - step;
      values[i] = above;
      const double up = weighted_sum(forward(input), weights);
      values[i] = below;
      const double down = weighted_sum(forward(input), weights);
      values[i] = before;
      expect_close(static_cast<double>(gradient[i]),
                   (up - down) / static_cast<double>(above - below), scale, tolerance,
                   what + "[" + std::to_string(i) + "]");
    }
  }

  void check_gradients(Tensor input, double tolerance = 1e-2, bool of_input = true) {
    pass.update_buffers = false;
    Saved saved;
    const Tensor output = forward(input, &saved);
    const Tensor weights = random_tensor(output.shape(), 99);
    const Tensor input_gradient = backward(input, weights, saved);
    for (std::size_t p = 0; p < parameters.entries().size(); ++p) {
      const int index = static_cast<int>(p);
      check(parameters[index], gradients[index], input, weights, tolerance,
            parameters.entries()[p].name);
    }
    if (!of_input) return;
    ASSERT_EQ(input_gradient.size(), input.size());
    check(input.values(), input_gradient.values(), input, weights, tolerance, "input");
  }
};

}  // namespace unisono::train
