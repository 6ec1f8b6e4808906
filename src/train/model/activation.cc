// Activations without parameters: ReLU and GELU.
#include "train/model/layers.h"

namespace unisono::train {
namespace {

class Relu final : public Layer {
 public:
  Tensor forward(const Tensor& input, Call& call, Saved*) const override {
    Tensor output = Tensor::uninitialised(input.shape());
    call.backend.relu(input.data(), input.size(), output.data());
    return output;
  }

  Tensor backward(const Tensor& input, const Tensor& output_gradient, Call& call,
                  Saved&) const override {
    Tensor gradient = Tensor::uninitialised(input.shape());
    call.backend.relu_gradient(input.data(), output_gradient.data(), input.size(), gradient.data());
    return gradient;
  }
};

class Gelu final : public Layer {
 public:
  Tensor forward(const Tensor& input, Call& call, Saved*) const override {
    Tensor output = Tensor::uninitialised(input.shape());
    call.backend.gelu(input.data(), input.size(), output.data());
    return output;
  }

  Tensor backward(const Tensor& input, const Tensor& output_gradient, Call& call,
                  Saved&) const override {
    Tensor gradient = Tensor::uninitialised(input.shape());
    call.backend.gelu_gradient(input.data(), output_gradient.data(), input.size(), gradient.data());
    return gradient;
  }
};

}  // namespace

std::shared_ptr<Layer> make_relu() { return std::make_shared<Relu>(); }
std::shared_ptr<Layer> make_gelu() { return std::make_shared<Gelu>(); }

}  // namespace unisono::train
