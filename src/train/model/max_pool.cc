// Max pooling.
#include <stdexcept>

#include "train/model/layers.h"

namespace unisono::train {
namespace {

class MaxPool final : public Layer {
 public:
  MaxPool(Image input, std::size_t size) : shape_{input, {}, size} {
    if (size == 0 || input.height < size || input.width < size) {
      throw std::invalid_argument("max pool: a window of " + std::to_string(size) +
                                  " does not fit an image of " + std::to_string(input.height) +
                                  "x" + std::to_string(input.width));
    }
    shape_.output = {input.channels, input.height / size, input.width / size};
  }

  Tensor forward(const Tensor& input, Call& call, Saved*) const override {
    Tensor output = Tensor::uninitialised({input.dim(0), shape_.output.size()});
    call.backend.max_pool(shape_, input.dim(0), input.data(), output.data());
    return output;
  }

  Tensor backward(const Tensor& input, const Tensor& output_gradient, Call& call,
                  Saved&) const override {
    Tensor gradient = Tensor::uninitialised(input.shape());
    call.backend.max_pool_gradient(shape_, input.dim(0), input.data(), output_gradient.data(),
                                   gradient.data());
    return gradient;
  }

 private:
  Pooling shape_;
};

}  // namespace

std::shared_ptr<Layer> make_max_pool(Image input, std::size_t size) {
  return std::make_shared<MaxPool>(input, size);
}

}  // namespace unisono::train
