// Convolutions, as products with the matrices of windows of many samples at once, and pooling.
#include <algorithm>

#include "train/cuda/gpu_backend.h"

namespace unisono::train {
namespace {

/// The most scratch memory that one convolution takes.
constexpr std::size_t kScratchMax = std::size_t{64} << 20;

/// At least one. Follows from the extents alone, and with it the order of additions.
std::size_t samples_at_once(std::size_t samples, std::size_t elements_of_one) {
  const std::size_t fit = kScratchMax / sizeof(float) / std::max(elements_of_one, std::size_t{1});
  return std::clamp(fit, std::size_t{1}, std::max(samples, std::size_t{1}));
}

kernels::Windows windows_of(const Convolution& shape, std::size_t samples, const float* x,
                            float* columns) {
  return {samples * shape.taps() * shape.output.plane(),
          kernels::extents_of(shape.input),
          kernels::extents_of(shape.output),
          shape.kernel,
          shape.padding,
          x,
          columns};
}

}  // namespace

void GpuBackend::convolve(const Convolution& shape, std::size_t samples, const float* x,
                          const float* weight, const float* bias, float* y) {
  const std::size_t taps = shape.taps(), plane = shape.output.plane();
  const std::size_t filters = shape.output.channels;
  if (samples * shape.output.size() == 0) return;
  launch(kernels::RepeatChannels{samples * shape.output.size(), filters, plane, bias, y});
  const std::size_t most = samples_at_once(samples, taps * plane);
  const Temporary<float> columns(blocks_, most * taps * plane);
  for (std::size_t first = 0; first < samples; first += most) {
    const std::size_t count = std::min(most, samples - first);
    launch(windows_of(shape, count, x + first * shape.input.size(), columns.get()));
    products_.multiply({filters,
                        plane,
                        taps,
                        {weight, taps},
                        {columns.get(), plane},
                        y + first * shape.output.size(),
                        plane,
                        true},
                       {count, 0, taps * plane, shape.output.size()});
  }
}

void GpuBackend::convolution_weight_gradient(const Convolution& shape, std::size_t samples,
                                             const float* x, const float* dy,
                                             float* weight_gradient, float* bias_gradient) {
  const std::size_t taps = shape.taps(), plane = shape.output.plane();
  const std::size_t filters = shape.output.channels;
  if (samples * shape.output.size() == 0) return;
  add_channel_sums(shape.output, samples, dy, bias_gradient);
  const std::size_t most = samples_at_once(samples, taps * (plane + filters));
  const Temporary<float> columns(blocks_, most * taps * plane);
  const Temporary<float> gradients(blocks_, most * filters * taps);  // of each sample
  for (std::size_t first = 0; first < samples; first += most) {
    const std::size_t count = std::min(most, samples - first);
    launch(windows_of(shape, count, x + first * shape.input.size(), columns.get()));
    products_.multiply({filters,
                        taps,
                        plane,
                        {dy + first * shape.output.size(), plane},
                        {columns.get(), plane, true},
                        gradients.get(),
                        taps},
                       {count, shape.output.size(), taps * plane, filters * taps});
    add_column_sums(gradients.get(), count, filters * taps, weight_gradient);
  }
}

void GpuBackend::convolution_input_gradient(const Convolution& shape, std::size_t samples,
                                            const float* dy, const float* weight, float* dx) {
  const std::size_t taps = shape.taps(), plane = shape.output.plane();
  const std::size_t filters = shape.output.channels;
  if (samples * shape.input.size() == 0) return;
  const std::size_t most = samples_at_once(samples, taps * plane);
  const Temporary<float> columns(blocks_, most * taps * plane);
  for (std::size_t first = 0; first < samples; first += most) {
    const std::size_t count = std::min(most, samples - first);
    products_.multiply({taps,
                        plane,
                        filters,
                        {weight, taps, true},
                        {dy + first * shape.output.size(), plane},
                        columns.get(),
                        plane},
                       {count, 0, shape.output.size(), taps * plane});
    launch(kernels::AddWindows{count * shape.input.size(), kernels::extents_of(shape.input),
                               kernels::extents_of(shape.output), shape.kernel, shape.padding,
                               columns.get(), dx + first * shape.input.size()});
  }
}

void GpuBackend::max_pool(const Pooling& shape, std::size_t samples, const float* x, float* y) {
  launch(kernels::MaxPool{samples * shape.output.size(), kernels::extents_of(shape.input),
                          kernels::extents_of(shape.output), shape.size, x, y});
}

void GpuBackend::max_pool_gradient(const Pooling& shape, std::size_t samples, const float* x,
                                   const float* dy, float* dx) {
  launch(kernels::MaxPoolGradient{samples * shape.input.size(), kernels::extents_of(shape.input),
                                  kernels::extents_of(shape.output), shape.size, x, dy, dx});
}

}  // namespace unisono::train
