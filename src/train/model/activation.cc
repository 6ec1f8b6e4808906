// Activations without parameters: ReLU and GELU.
#include <cmath>

#include "train/model/layers.h"
#include "train/model/vector_math.h"

namespace unisono::train {
namespace {

class Relu final : public Layer {
 public:
  Tensor forward(const Tensor& input, Call&, Saved*) const override {
    Tensor output = Tensor::uninitialised(input.shape());
    const float* x = input.data();
    float* y = output.data();
    for (std::size_t i = 0; i < input.size(); ++i) y[i] = x[i] > 0 ? x[i] : 0;
    return output;
  }

  Tensor backward(const Tensor& input, const Tensor& output_gradient, Call&,
                  Saved&) const override {
    Tensor gradient = Tensor::uninitialised(input.shape());
    const float *x = input.data(), *dy = output_gradient.data();
    float* dx = gradient.data();
    for (std::size_t i = 0; i < input.size(); ++i) {
      const float slope = dy[i];  // read either way, or the loop would not vectorise
      dx[i] = x[i] > 0 ? slope : 0;
    }
    return gradient;
  }
};

constexpr float kRoot2OverPi = 0.7978845608028654F;
constexpr float kCubic = 0.044715F;

class Gelu final : public Layer {
 public:
  Tensor forward(const Tensor& input, Call&, Saved*) const override {
    Tensor output = Tensor::uninitialised(input.shape());
    const float* x = input.data();
    float* y = output.data();
    for (std::size_t i = 0; i < input.size(); ++i) {
      y[i] = 0.5F * x[i] * (1 + vector_tanh(kRoot2OverPi * (x[i] + kCubic * x[i] * x[i] * x[i])));
    }
    return output;
  }

  Tensor backward(const Tensor& input, const Tensor& output_gradient, Call&,
                  Saved&) const override {
    Tensor gradient = Tensor::uninitialised(input.shape());
    const float *x = input.data(), *dy = output_gradient.data();
    float* dx = gradient.data();
    for (std::size_t i = 0; i < input.size(); ++i) {
      const float square = x[i] * x[i];
      const float t = vector_tanh(kRoot2OverPi * (x[i] + kCubic * square * x[i]));
      const float inner = kRoot2OverPi * (1 + 3 * kCubic * square);
      dx[i] = dy[i] * 0.5F * ((1 + t) + x[i] * (1 - t * t) * inner);
    }
    return gradient;
  }
};

}  // namespace

std::shared_ptr<Layer> make_relu() { return std::make_shared<Relu>(); }
std::shared_ptr<Layer> make_gelu() { return std::make_shared<Gelu>(); }

}  // namespace unisono::train
