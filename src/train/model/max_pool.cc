// Max pooling. Backward finds each window's maximum again: cheaper than keeping where it was.
#include <algorithm>
#include <stdexcept>

#include "train/model/layers.h"

namespace unisono::train {
namespace {

class MaxPool final : public Layer {
 public:
  MaxPool(Image input, std::size_t size) : input_(input), size_(size) {
    if (size == 0 || input.height < size || input.width < size) {
      throw std::invalid_argument("max pool: a window of " + std::to_string(size) +
                                  " does not fit an image of " + std::to_string(input.height) +
                                  "x" + std::to_string(input.width));
    }
    output_ = {input.channels, input.height / size, input.width / size};
  }

  Tensor forward(const Tensor& input, Call&, Saved*) const override {
    Tensor output = Tensor::uninitialised({input.dim(0), output_.size()});
    Tensor tallest = Tensor::uninitialised({input_.width});  // of a window's rows, by column
    float* column = tallest.data();
    float* y = output.data();
    for_each_row(input.dim(0), [&](std::size_t corner) {
      const float* rows = input.data() + corner;
      std::copy_n(rows, input_.width, column);
      for (std::size_t row = 1; row < size_; ++row) {
        const float* next = rows + row * input_.width;
        for (std::size_t x = 0; x < input_.width; ++x) column[x] = std::max(column[x], next[x]);
      }
      for (std::size_t x = 0; x < output_.width; ++x) {
        *y++ = *std::max_element(column + x * size_, column + (x + 1) * size_);
      }
    });
    return output;
  }

  Tensor backward(const Tensor& input, const Tensor& output_gradient, Call&,
                  Saved&) const override {
    Tensor gradient(input.shape());
    const float* dy = output_gradient.data();
    for_each_row(input.dim(0), [&](std::size_t row) {
      for (std::size_t x = 0; x < output_.width; ++x) {
        const std::size_t corner = row + x * size_;
        gradient.data()[corner + largest(input.data() + corner)] = *dy++;
      }
    });
    return gradient;
  }

 private:
  /// Calls visit(first input element) for every row of windows.
  template <typename Visit>
  void for_each_row(std::size_t samples, Visit visit) const {
    for (std::size_t plane = 0; plane < samples * input_.channels; ++plane) {
      for (std::size_t y = 0; y < output_.height; ++y) {
        visit(plane * input_.plane() + y * size_ * input_.width);
      }
    }
  }

  /// Offset of the window's first maximum from its corner.
  std::size_t largest(const float* corner) const {
    std::size_t best = 0;
    for (std::size_t y = 0; y < size_; ++y) {
      for (std::size_t x = 0; x < size_; ++x) {
        const std::size_t offset = y * input_.width + x;
        best = corner[offset] > corner[best] ? offset : best;
      }
    }
    return best;
  }

  Image input_, output_;
  std::size_t size_;
};

}  // namespace

std::shared_ptr<Layer> make_max_pool(Image input, std::size_t size) {
  return std::make_shared<MaxPool>(input, size);
}

}  // namespace unisono::train
