// A dense layer: one product forward, two backward.
#include <cmath>

#include "train/model/layers.h"

namespace unisono::train {
namespace {

class Dense final : public Layer {
 public:
  Dense(std::size_t inputs, std::size_t outputs, bool bias)
      : inputs_(inputs), outputs_(outputs), has_bias_(bias) {}

  void declare(Declaration& declaration) override {
    weight_ = declaration.parameter("weight", {outputs_, inputs_});
    if (has_bias_) bias_ = declaration.parameter("bias", {outputs_});
  }

  void initialise(Arena& parameters, Arena&, Random& random) const override {
    // PyTorch's default: both uniform within one over the root of the inputs.
    const float range = 1 / std::sqrt(static_cast<float>(inputs_));
    for (float& value : parameters[weight_]) value = random.symmetric(range);
    if (!has_bias_) return;
    for (float& value : parameters[bias_]) value = random.symmetric(range);
  }

  Tensor forward(const Tensor& input, Call& call, Saved*) const override {
    const std::size_t rows = input.dim(0);
    Tensor output = Tensor::uninitialised({rows, outputs_});
    if (has_bias_) call.backend.repeat_row(call.use(bias_).data(), rows, outputs_, output.data());
    call.backend.multiply({.rows = rows,
                           .columns = outputs_,
                           .inner = inputs_,
                           .left = {input.data(), inputs_},
                           .right = {call.use(weight_).data(), inputs_, true},
                           .result = output.data(),
                           .result_stride = outputs_,
                           .accumulate = has_bias_});
    return output;
  }

  Tensor backward(const Tensor& input, const Tensor& output_gradient, Call& call,
                  Saved&) const override {
    const std::size_t rows = input.dim(0);
    if (has_bias_) {
      call.backend.add_column_sums(output_gradient.data(), rows, outputs_,
                                   call.gradients[bias_].data());
      call.ready(bias_);
    }
    call.backend.multiply({.rows = outputs_,
                           .columns = inputs_,
                           .inner = rows,
                           .left = {output_gradient.data(), outputs_, true},
                           .right = {input.data(), inputs_},
                           .result = call.gradients[weight_].data(),
                           .result_stride = inputs_,
                           .accumulate = true});
    call.ready(weight_);
    if (!call.input_gradient) return {};
    Tensor gradient = Tensor::uninitialised({rows, inputs_});
    call.backend.multiply({.rows = rows,
                           .columns = inputs_,
                           .inner = outputs_,
                           .left = {output_gradient.data(), outputs_},
                           .right = {call.parameters[weight_].data(), inputs_},
                           .result = gradient.data(),
                           .result_stride = inputs_});
    return gradient;
  }

 private:
  std::size_t inputs_, outputs_;
  bool has_bias_;
  int weight_ = -1, bias_ = -1;
};

}  // namespace

std::shared_ptr<Layer> make_dense(std::size_t inputs, std::size_t outputs, bool bias) {
  return std::make_shared<Dense>(inputs, outputs, bias);
}

}  // namespace unisono::train
