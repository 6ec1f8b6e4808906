// Layer norm: each row to mean 0 and variance 1, then weight and bias.
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
    Tensor output = Tensor::uninitialised(input.shape());
    call.backend.layer_norm(shape_of(input), input.data(), call.use(weight_).data(),
                            call.use(bias_).data(), output.data());
    return output;
  }

  Tensor backward(const Tensor& input, const Tensor& output_gradient, Call& call,
                  Saved&) const override {
    Tensor gradient = Tensor::uninitialised(input.shape());
    call.backend.layer_norm_gradient(
        shape_of(input), input.data(), output_gradient.data(), call.parameters[weight_].data(),
        call.gradients[weight_].data(), call.gradients[bias_].data(), gradient.data());
    call.ready(bias_);
    call.ready(weight_);
    return gradient;
  }

 private:
  LayerNormalisation shape_of(const Tensor& input) const {
    return {input.dim(0), features_, epsilon_};
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
