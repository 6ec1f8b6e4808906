// Convolution with a bias for each filter.
#include <cmath>
#include <stdexcept>

#include "train/model/layers.h"

namespace unisono::train {
namespace {

class Conv2d final : public Layer {
 public:
  Conv2d(Image input, std::size_t filters, std::size_t kernel, std::size_t padding)
      : shape_{input, {}, kernel, padding} {
    if (filters == 0) throw std::invalid_argument("conv2d: no filters; give at least one");
    if (kernel == 0 || padding >= kernel || input.height + 2 * padding < kernel ||
        input.width + 2 * padding < kernel) {
      throw std::invalid_argument("conv2d: a kernel of " + std::to_string(kernel) +
                                  " with padding " + std::to_string(padding) +
                                  " does not fit an image of " + std::to_string(input.height) +
                                  "x" + std::to_string(input.width));
    }
    shape_.output = {filters, input.height + 2 * padding - kernel + 1,
                     input.width + 2 * padding - kernel + 1};
  }

  void declare(Declaration& declaration) override {
    weight_ = declaration.parameter(
        "weight", {shape_.output.channels, shape_.input.channels, shape_.kernel, shape_.kernel});
    bias_ = declaration.parameter("bias", {shape_.output.channels});
  }

  void initialise(Arena& parameters, Arena&, Random& random) const override {
    const float range = 1 / std::sqrt(static_cast<float>(shape_.taps()));
    for (float& value : parameters[weight_]) value = random.symmetric(range);
    for (float& value : parameters[bias_]) value = random.symmetric(range);
  }

  Tensor forward(const Tensor& input, Call& call, Saved*) const override {
    const std::size_t samples = input.dim(0);
    Tensor output = Tensor::uninitialised({samples, shape_.output.size()});
    call.backend.convolve(shape_, samples, input.data(), call.use(weight_).data(),
                          call.use(bias_).data(), output.data());
    return output;
  }

  Tensor backward(const Tensor& input, const Tensor& output_gradient, Call& call,
                  Saved&) const override {
    const std::size_t samples = input.dim(0);
    call.backend.convolution_weight_gradient(shape_, samples, input.data(), output_gradient.data(),
                                             call.gradients[weight_].data(),
                                             call.gradients[bias_].data());
    call.ready(bias_);
    call.ready(weight_);
    if (!call.input_gradient) return {};
    Tensor gradient = Tensor::uninitialised({samples, shape_.input.size()});
    call.backend.convolution_input_gradient(shape_, samples, output_gradient.data(),
                                            call.parameters[weight_].data(), gradient.data());
    return gradient;
  }

 private:
  Convolution shape_;
  int weight_ = -1, bias_ = -1;
};

}  // namespace

std::shared_ptr<Layer> make_conv2d(Image input, std::size_t filters, std::size_t kernel,
                                   std::size_t padding) {
  return std::make_shared<Conv2d>(input, filters, kernel, padding);
}

}  // namespace unisono::train
