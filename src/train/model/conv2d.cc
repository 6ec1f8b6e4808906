// Convolution as a product: the windows of one sample become the columns of a matrix that stays in
// the cache, then weights times columns is the sample's output.
#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "train/model/gemm.h"
#include "train/model/layers.h"

namespace unisono::train {
namespace {

class Conv2d final : public Layer {
 public:
  Conv2d(Image input, std::size_t filters, std::size_t kernel, std::size_t padding)
      : input_(input), filters_(filters), kernel_(kernel), padding_(padding) {
    if (kernel == 0 || padding >= kernel || input.height + 2 * padding < kernel ||
        input.width + 2 * padding < kernel) {
      throw std::invalid_argument("conv2d: a kernel of " + std::to_string(kernel) +
                                  " with padding " + std::to_string(padding) +
                                  " does not fit an image of " + std::to_string(input.height) +
                                  "x" + std::to_string(input.width));
    }
    output_ = {filters, input.height + 2 * padding - kernel + 1,
               input.width + 2 * padding - kernel + 1};
    taps_ = input.channels * kernel * kernel;
  }

  void declare(Declaration& declaration) override {
    weight_ = declaration.parameter("weight", {filters_, input_.channels, kernel_, kernel_});
    bias_ = declaration.parameter("bias", {filters_});
  }

  void initialise(Arena& parameters, Arena&, Random& random) const override {
    const float range = 1 / std::sqrt(static_cast<float>(taps_));
    for (float& value : parameters[weight_]) value = random.symmetric(range);
    for (float& value : parameters[bias_]) value = random.symmetric(range);
  }

  Tensor forward(const Tensor& input, Call& call, Saved*) const override {
    const std::size_t samples = input.dim(0), plane = output_.plane();
    const auto weight = call.use(weight_), bias = call.use(bias_);
    Tensor output = Tensor::uninitialised({samples, output_.size()});
    Tensor columns = Tensor::uninitialised({taps_, plane});
    for (std::size_t n = 0; n < samples; ++n) {
      float* y = output.data() + n * output_.size();
      for (std::size_t f = 0; f < filters_; ++f) std::fill_n(y + f * plane, plane, bias[f]);
      to_columns(input.data() + n * input_.size(), columns.data());
      multiply({.rows = filters_,
                .columns = plane,
                .inner = taps_,
                .left = {weight.data(), taps_},
                .right = {columns.data(), plane},
                .result = y,
                .result_stride = plane,
                .accumulate = true});
    }
    return output;
  }

  Tensor backward(const Tensor& input, const Tensor& output_gradient, Call& call,
                  Saved&) const override {
    Tensor columns = Tensor::uninitialised({taps_, output_.plane()});
    weight_gradient(input, output_gradient, columns, call);
    if (!call.input_gradient) return {};
    return input_gradient(output_gradient, columns, call.parameters[weight_]);
  }

 private:
  /// Columns of this tap inside the image: output x in [first, last) reads input x + shift.
  struct Range {
    std::size_t first, last;
  };
  static Range inside(std::size_t tap, std::size_t padding, std::size_t extent,
                      std::size_t outputs) {
    const std::size_t first = padding > tap ? padding - tap : 0;
    const std::size_t last = std::min(outputs, extent + padding - tap);
    return {std::min(first, last), last};
  }

  /// Calls visit(input row, column row, count) for every run of one tap's row inside the image.
  template <typename Visit>
  void for_each_run(Visit visit) const {
    std::size_t column = 0;
    for (std::size_t c = 0; c < input_.channels; ++c) {
      for (std::size_t ky = 0; ky < kernel_; ++ky) {
        const Range ys = inside(ky, padding_, input_.height, output_.height);
        for (std::size_t kx = 0; kx < kernel_; ++kx, ++column) {
          const Range xs = inside(kx, padding_, input_.width, output_.width);
          for (std::size_t y = ys.first; y < ys.last; ++y) {
            visit(
                c * input_.plane() + (y + ky - padding_) * input_.width + xs.first + kx - padding_,
                column * output_.plane() + y * output_.width + xs.first, xs.last - xs.first);
          }
        }
      }
    }
  }

  void to_columns(const float* image, float* columns) const {
    if (padding_ > 0) std::fill_n(columns, taps_ * output_.plane(), 0.0F);
    for_each_run([=](std::size_t from, std::size_t to, std::size_t count) {
      const float* source = image + from;
      float* target = columns + to;
      for (std::size_t i = 0; i < count; ++i) target[i] = source[i];
    });
  }

  void add_columns(const float* columns, float* image) const {
    for_each_run([=](std::size_t to, std::size_t from, std::size_t count) {
      const float* source = columns + from;
      float* target = image + to;
      for (std::size_t i = 0; i < count; ++i) target[i] += source[i];
    });
  }

  void weight_gradient(const Tensor& input, const Tensor& output_gradient, Tensor& columns,
                       Call& call) const {
    const std::size_t plane = output_.plane();
    const auto weight = call.gradients[weight_], bias = call.gradients[bias_];
    for (std::size_t n = 0; n < input.dim(0); ++n) {
      const float* dy = output_gradient.data() + n * output_.size();
      for (std::size_t f = 0; f < filters_; ++f) {
        bias[f] += static_cast<float>(lane_sum(dy + f * plane, plane));
      }
      to_columns(input.data() + n * input_.size(), columns.data());
      multiply({.rows = filters_,
                .columns = taps_,
                .inner = plane,
                .left = {dy, plane},
                .right = {columns.data(), plane, true},
                .result = weight.data(),
                .result_stride = taps_,
                .accumulate = true});
    }
    call.ready(bias_);
    call.ready(weight_);
  }

  Tensor input_gradient(const Tensor& output_gradient, Tensor& columns,
                        std::span<const float> weight) const {
    const std::size_t samples = output_gradient.dim(0), plane = output_.plane();
    Tensor gradient({samples, input_.size()});
    for (std::size_t n = 0; n < samples; ++n) {
      multiply({.rows = taps_,
                .columns = plane,
                .inner = filters_,
                .left = {weight.data(), taps_, true},
                .right = {output_gradient.data() + n * output_.size(), plane},
                .result = columns.data(),
                .result_stride = plane});
      add_columns(columns.data(), gradient.data() + n * input_.size());
    }
    return gradient;
  }

  Image input_, output_;
  std::size_t filters_, kernel_, padding_, taps_;
  int weight_ = -1, bias_ = -1;
};

}  // namespace

std::shared_ptr<Layer> make_conv2d(Image input, std::size_t filters, std::size_t kernel,
                                   std::size_t padding) {
  return std::make_shared<Conv2d>(input, filters, kernel, padding);
}

}  // namespace unisono::train
