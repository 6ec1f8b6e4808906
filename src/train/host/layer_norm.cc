// Layer norm. Backward measures the rows again: they are short.
#include <cmath>

#include "train/host/host_backend.h"
#include "train/host/lane_sums.h"

namespace unisono::train {
namespace {

struct Row {
  float mean, inverse_deviation;
};
Row measured(const LayerNormalisation& shape, const float* x) {
  const auto n = static_cast<double>(shape.features);
  const auto mean = static_cast<float>(lane_sum(x, shape.features) / n);
  const double variance = lane_squares(x, shape.features, mean) / n;
  return {mean, static_cast<float>(1 / std::sqrt(variance + static_cast<double>(shape.epsilon)))};
}

}  // namespace

void HostBackend::layer_norm(const LayerNormalisation& shape, const float* x, const float* weight,
                             const float* bias, float* y) {
  const std::size_t features = shape.features;
  for (std::size_t row = 0; row < shape.rows; ++row, x += features, y += features) {
    const auto [mean, inverse] = measured(shape, x);
    for (std::size_t i = 0; i < features; ++i) {
      y[i] = (x[i] - mean) * inverse * weight[i] + bias[i];
    }
  }
}

void HostBackend::layer_norm_gradient(const LayerNormalisation& shape, const float* x,
                                      const float* dy, const float* weight, float* weight_gradient,
                                      float* bias_gradient, float* dx) {
  const std::size_t features = shape.features;
  Tensor slopes = Tensor::uninitialised({features});  // dy * weight
  float* slope = slopes.data();
  for (std::size_t row = 0; row < shape.rows;
       ++row, x += features, dy += features, dx += features) {
    const auto [mean, inverse] = measured(shape, x);
    for (std::size_t i = 0; i < features; ++i) {
      weight_gradient[i] += dy[i] * ((x[i] - mean) * inverse);
      bias_gradient[i] += dy[i];
      slope[i] = dy[i] * weight[i];
    }
    const auto n = static_cast<double>(features);
    const auto level = static_cast<float>(lane_sum(slope, features) / n);
    const auto along =
        static_cast<float>(lane_centred_dot(slope, x, features, mean) / n) * inverse * inverse;
    for (std::size_t i = 0; i < features; ++i) {
      dx[i] = (slope[i] - level - (x[i] - mean) * along) * inverse;
    }
  }
}

}  // namespace unisono::train
