// Layer norm: each row to mean 0 and variance 1, then weight and bias. Backward measures the rows
// again: they are short.
#include <cmath>

#include "train/model/layers.h"

namespace unisono::train {
namespace {

class LayerNorm final : public Layer {
 public:
  LayerNorm(std::size_t features, float epsilon) : features_(features), epsilon_(epsilon) {}

  void declare(Declaration& declaration) override {
    weight_ = declaration.parameter("weight", {features_});
    bias_ = declaration.parameter("bias", {features_});
  }

  void initialise(Arena& parameters, Arena&, Random&) const override {
    for (float& value : parameters[weight_]) value = 1;
  }

  Tensor forward(const Tensor& input, Call& call, Saved*) const override {
    const auto weight = call.use(weight_), bias = call.use(bias_);
    Tensor output = Tensor::uninitialised(input.shape());
    for (std::size_t row = 0; row < input.dim(0); ++row) {
      const float* x = input.data() + row * features_;
      float* y = output.data() + row * features_;
      const auto [mean, inverse] = measured(x);
      for (std::size_t i = 0; i < features_; ++i) {
        y[i] = (x[i] - mean) * inverse * weight[i] + bias[i];
      }
    }
    return output;
  }

  Tensor backward(const Tensor& input, const Tensor& output_gradient, Call& call,
                  Saved&) const override {
    const auto weight = call.parameters[weight_];
    float* weight_gradient = call.gradients[weight_].data();
    float* bias_gradient = call.gradients[bias_].data();
    Tensor gradient = Tensor::uninitialised(input.shape());
    Tensor slopes = Tensor::uninitialised({features_});  // dy * weight
    for (std::size_t row = 0; row < input.dim(0); ++row) {
      const float* x = input.data() + row * features_;
      const float* dy = output_gradient.data() + row * features_;
      float* dx = gradient.data() + row * features_;
      float* slope = slopes.data();
      const auto [mean, inverse] = measured(x);
      for (std::size_t i = 0; i < features_; ++i) {
        weight_gradient[i] += dy[i] * ((x[i] - mean) * inverse);
        bias_gradient[i] += dy[i];
        slope[i] = dy[i] * weight[i];
      }
      const auto n = static_cast<double>(features_);
      const auto level = static_cast<float>(lane_sum(slope, features_) / n);
      const auto along =
          static_cast<float>(lane_centred_dot(slope, x, features_, mean) / n) * inverse * inverse;
      for (std::size_t i = 0; i < features_; ++i) {
        dx[i] = (slope[i] - level - (x[i] - mean) * along) * inverse;
      }
    }
    call.ready(bias_);
    call.ready(weight_);
    return gradient;
  }

 private:
  struct Row {
    float mean, inverse_deviation;
  };
  Row measured(const float* x) const {
    const auto n = static_cast<double>(features_);
    const auto mean = static_cast<float>(lane_sum(x, features_) / n);
    const double variance = lane_squares(x, features_, mean) / n;
    return {mean, static_cast<float>(1 / std::sqrt(variance + static_cast<double>(epsilon_)))};
  }

  std::size_t features_;
  float epsilon_;
  int weight_ = -1, bias_ = -1;
};

}  // namespace

std::shared_ptr<Layer> make_layer_norm(std::size_t features, float epsilon) {
  return std::make_shared<LayerNorm>(features, epsilon);
}

}  // namespace unisono::train
