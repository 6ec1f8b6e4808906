// Max pooling. Backward finds each window's maximum again: cheaper than keeping where it was.
#include <algorithm>

#include "train/host/host_backend.h"

namespace unisono::train {
namespace {

/// Calls visit(first input element) for every row of windows.
template <typename Visit>
void for_each_row(const Pooling& shape, std::size_t samples, Visit visit) {
  for (std::size_t plane = 0; plane < samples * shape.input.channels; ++plane) {
    for (std::size_t y = 0; y < shape.output.height; ++y) {
      visit(plane * shape.input.plane() + y * shape.size * shape.input.width);
    }
  }
}

/// Offset of the window's first maximum from its corner.
std::size_t largest(const Pooling& shape, const float* corner) {
  std::size_t best = 0;
  for (std::size_t y = 0; y < shape.size; ++y) {
    for (std::size_t x = 0; x < shape.size; ++x) {
      const std::size_t offset = y * shape.input.width + x;
      best = corner[offset] > corner[best] ? offset : best;
    }
  }
  return best;
}

}  // namespace

void HostBackend::max_pool(const Pooling& shape, std::size_t samples, const float* x, float* y) {
  const std::size_t width = shape.input.width, size = shape.size;
  Tensor tallest = Tensor::uninitialised({width});  // of a window's rows, by column
  float* column = tallest.data();
  for_each_row(shape, samples, [&](std::size_t corner) {
    const float* rows = x + corner;
    std::copy_n(rows, width, column);
    for (std::size_t row = 1; row < size; ++row) {
      const float* next = rows + row * width;
      for (std::size_t i = 0; i < width; ++i) column[i] = std::max(column[i], next[i]);
    }
    for (std::size_t i = 0; i < shape.output.width; ++i) {
      *y++ = *std::max_element(column + i * size, column + (i + 1) * size);
    }
  });
}

void HostBackend::max_pool_gradient(const Pooling& shape, std::size_t samples, const float* x,
                                    const float* dy, float* dx) {
  std::fill_n(dx, samples * shape.input.size(), 0.0F);
  for_each_row(shape, samples, [&](std::size_t row) {
    for (std::size_t i = 0; i < shape.output.width; ++i) {
      const std::size_t corner = row + i * shape.size;
      dx[corner + largest(shape, x + corner)] = *dy++;
    }
  });
}

}  // namespace unisono::train
