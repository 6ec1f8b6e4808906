// Convolution as a product: the windows of one sample become the columns of a matrix that stays in
// the cache, then weights times columns is the sample's output.
#include <algorithm>

#include "train/host/gemm.h"
#include "train/host/host_backend.h"
#include "train/host/lane_sums.h"

namespace unisono::train {
namespace {

/// Columns of one tap inside the image: output x in [first, last) reads input x + tap - padding.
struct Range {
  std::size_t first, last;
};
Range inside(std::size_t tap, std::size_t padding, std::size_t extent, std::size_t outputs) {
  const std::size_t first = padding > tap ? padding - tap : 0;
  const std::size_t past = extent + padding;  // a tap from there on is behind the image everywhere
  const std::size_t last = past > tap ? std::min(outputs, past - tap) : 0;
  return {std::min(first, last), last};
}

/// Calls visit(input row, column row, count) for every run of one tap's row inside the image.
template <typename Visit>
void for_each_run(const Convolution& shape, Visit visit) {
  const auto& [input, output, kernel, padding] = shape;
  std::size_t column = 0;
  for (std::size_t c = 0; c < input.channels; ++c) {
    for (std::size_t ky = 0; ky < kernel; ++ky) {
      const Range ys = inside(ky, padding, input.height, output.height);
      for (std::size_t kx = 0; kx < kernel; ++kx, ++column) {
        const Range xs = inside(kx, padding, input.width, output.width);
        if (xs.first == xs.last) continue;
        for (std::size_t y = ys.first; y < ys.last; ++y) {
          visit(c * input.plane() + (y + ky - padding) * input.width + xs.first + kx - padding,
                column * output.plane() + y * output.width + xs.first, xs.last - xs.first);
        }
      }
    }
  }
}

void to_columns(const Convolution& shape, const float* image, float* columns) {
  if (shape.padding > 0) std::fill_n(columns, shape.taps() * shape.output.plane(), 0.0F);
  for_each_run(shape, [=](std::size_t from, std::size_t to, std::size_t count) {
    const float* source = image + from;
    float* target = columns + to;
    for (std::size_t i = 0; i < count; ++i) target[i] = source[i];
  });
}

void add_columns(const Convolution& shape, const float* columns, float* image) {
  for_each_run(shape, [=](std::size_t to, std::size_t from, std::size_t count) {
    const float* source = columns + from;
    float* target = image + to;
    for (std::size_t i = 0; i < count; ++i) target[i] += source[i];
  });
}

Tensor room_for_columns(const Convolution& shape) {
  return Tensor::uninitialised({shape.taps(), shape.output.plane()});
}

}  // namespace

void HostBackend::convolve(const Convolution& shape, std::size_t samples, const float* x,
                           const float* weight, const float* bias, float* y) {
  const std::size_t plane = shape.output.plane(), filters = shape.output.channels;
  Tensor columns = room_for_columns(shape);
  for (std::size_t n = 0; n < samples; ++n) {
    float* of_sample = y + n * shape.output.size();
    for (std::size_t f = 0; f < filters; ++f) std::fill_n(of_sample + f * plane, plane, bias[f]);
    to_columns(shape, x + n * shape.input.size(), columns.data());
    train::multiply({.rows = filters,
                     .columns = plane,
                     .inner = shape.taps(),
                     .left = {weight, shape.taps()},
                     .right = {columns.data(), plane},
                     .result = of_sample,
                     .result_stride = plane,
                     .accumulate = true});
  }
}

void HostBackend::convolution_weight_gradient(const Convolution& shape, std::size_t samples,
                                              const float* x, const float* dy,
                                              float* weight_gradient, float* bias_gradient) {
  const std::size_t plane = shape.output.plane(), filters = shape.output.channels;
  Tensor columns = room_for_columns(shape);
  for (std::size_t n = 0; n < samples; ++n) {
    const float* of_sample = dy + n * shape.output.size();
    for (std::size_t f = 0; f < filters; ++f) {
      bias_gradient[f] += static_cast<float>(lane_sum(of_sample + f * plane, plane));
    }
    to_columns(shape, x + n * shape.input.size(), columns.data());
    train::multiply({.rows = filters,
                     .columns = shape.taps(),
                     .inner = plane,
                     .left = {of_sample, plane},
                     .right = {columns.data(), plane, true},
                     .result = weight_gradient,
                     .result_stride = shape.taps(),
                     .accumulate = true});
  }
}

void HostBackend::convolution_input_gradient(const Convolution& shape, std::size_t samples,
                                             const float* dy, const float* weight, float* dx) {
  const std::size_t plane = shape.output.plane();
  Tensor columns = room_for_columns(shape);
  std::fill_n(dx, samples * shape.input.size(), 0.0F);
  for (std::size_t n = 0; n < samples; ++n) {
    train::multiply({.rows = shape.taps(),
                     .columns = plane,
                     .inner = shape.output.channels,
                     .left = {weight, shape.taps(), true},
                     .right = {dy + n * shape.output.size(), plane},
                     .result = columns.data(),
                     .result_stride = plane});
    add_columns(shape, columns.data(), dx + n * shape.input.size());
  }
}

}  // namespace unisono::train
