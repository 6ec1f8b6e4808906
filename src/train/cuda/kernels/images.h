// Kernels on images: windows of convolutions, pooling, normalisation by channel. See item.h.
#pragma once

#include "train/cuda/kernels/item.h"
#include "train/model/backend.h"

namespace unisono::train::kernels {

/// An image's extents as kernels pass them around.
struct Extents {
  std::uint64_t channels, height, width;
  UNISONO_HOST_DEVICE std::uint64_t plane() const { return height * width; }
  UNISONO_HOST_DEVICE std::uint64_t size() const { return channels * plane(); }
};
inline Extents extents_of(const Image& image) {
  return {image.channels, image.height, image.width};
}

/// The matrix of windows, [samples, taps, output plane]; an item is one of its elements.
struct Windows {
  std::uint64_t items;
  Extents input, output;  ///< of `output` height and width alone
  std::uint64_t kernel, padding;
  const float* x;
  float* columns;
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const {
    const auto [above, ox] = split(i, output.width);
    const auto [row, oy] = split(above, output.height);
    const auto [rest, kx] = split(row, kernel);
    const auto [plane, ky] = split(rest, kernel);  // of sample and channel
    const std::uint64_t y = oy + ky, x_at = ox + kx;
    const bool inside = y >= padding && y < input.height + padding && x_at >= padding &&
                        x_at < input.width + padding;
    columns[i] =
        inside ? x[plane * input.plane() + (y - padding) * input.width + x_at - padding] : 0;
  }
  template <class Visit>
  void buffers(Visit visit) {
    visit(x, items / (kernel * kernel * output.plane()) * input.plane());
    visit(columns, items);
  }
};

/// The reverse: an item is an element of dx, the sum over all windows that it is in.
struct AddWindows {
  std::uint64_t items;
  Extents input, output;  ///< of `output` height and width alone
  std::uint64_t kernel, padding;
  const float* columns;
  float* dx;
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const {
    const auto [above, x] = split(i, input.width);
    const auto [plane, y] = split(above, input.height);  // of sample and channel
    float sum = 0;
    for (std::uint64_t ky = 0; ky < kernel; ++ky) {
      const std::uint64_t oy = y + padding - ky;  // wraps around above the image
      if (y + padding < ky || oy >= output.height) continue;
      for (std::uint64_t kx = 0; kx < kernel; ++kx) {
        const std::uint64_t ox = x + padding - kx;
        if (x + padding < kx || ox >= output.width) continue;
        const std::uint64_t row = (plane * kernel + ky) * kernel + kx;
        sum += columns[row * output.plane() + oy * output.width + ox];
      }
    }
    dx[i] = sum;
  }
  template <class Visit>
  void buffers(Visit visit) {
    visit(columns, items / input.plane() * kernel * kernel * output.plane());
    visit(dx, items);
  }
};

/// Every plane of y, [rows, channels, plane], becomes its channel's value.
struct RepeatChannels {
  std::uint64_t items, channels, plane;
  const float* values;
  float* y;
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const {
    y[i] = values[split(split(i, plane).quotient, channels).remainder];
  }
  template <class Visit>
  void buffers(Visit visit) {
    visit(values, channels);
    visit(y, items);
  }
};

/// An item is a window.
struct MaxPool {
  std::uint64_t items;
  Extents input, output;
  std::uint64_t size;
  const float* x;
  float* y;
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const {
    const auto [above, ox] = split(i, output.width);
    const auto [plane, oy] = split(above, output.height);
    const float* corner = x + plane * input.plane() + oy * size * input.width + ox * size;
    float largest = corner[0];
    for (std::uint64_t at = 0; at < size * size; ++at) {
      const auto [row, column] = split(at, size);
      const float value = corner[row * input.width + column];
      largest = largest < value ? value : largest;
    }
    y[i] = largest;
  }
  template <class Visit>
  void buffers(Visit visit) {
    visit(x, items / output.plane() * input.plane());
    visit(y, items);
  }
};

/// An item is an element of dx, which looks whether it is the first maximum of its window.
struct MaxPoolGradient {
  std::uint64_t items;
  Extents input, output;
  std::uint64_t size;
  const float *x, *dy;
  float* dx;
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const {
    const auto [above, column] = split(i, input.width);
    const auto [plane, row] = split(above, input.height);
    const auto [oy, y_in] = split(row, size);
    const auto [ox, x_in] = split(column, size);
    if (oy >= output.height || ox >= output.width) {
      dx[i] = 0;
      return;
    }
    const float* corner = x + plane * input.plane() + oy * size * input.width + ox * size;
    std::uint64_t best = 0;
    for (std::uint64_t at = 0; at < size * size; ++at) {
      const auto [y, x_at] = split(at, size);
      const std::uint64_t offset = y * input.width + x_at;
      best = corner[offset] > corner[best] ? offset : best;
    }
    const bool is_largest = best == y_in * input.width + x_in;
    dx[i] = is_largest ? dy[(plane * output.height + oy) * output.width + ox] : 0;
  }
  template <class Visit>
  void buffers(Visit visit) {
    const std::uint64_t planes = items / input.plane();
    visit(x, items);
    visit(dy, planes * output.plane());
    visit(dx, items);
  }
};

struct NormaliseChannels {
  std::uint64_t items, channels, plane;
  const float *x, *used, *weight, *bias;
  float* y;
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const {
    const std::uint64_t c = split(split(i, plane).quotient, channels).remainder;
    const float scale = weight[c] * used[channels + c];
    y[i] = (x[i] - used[c]) * scale + bias[c];
  }
  template <class Visit>
  void buffers(Visit visit) {
    visit(x, items);
    visit(used, 2 * channels + 1);
    visit(weight, channels);
    visit(bias, channels);
    visit(y, items);
  }
};

struct NormaliseChannelsGradient {
  std::uint64_t items, channels, plane;
  const float *x, *dy, *used, *sums, *weight;
  float* dx;
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const {
    const std::uint64_t c = split(split(i, plane).quotient, channels).remainder;
    const float inverse = used[channels + c], count = used[2 * channels];
    const float mean_dy = sums[c] / count, scale = weight[c] * inverse;
    const float slope = sums[channels + c] / count * inverse * inverse;
    dx[i] = (dy[i] - mean_dy - (x[i] - used[c]) * slope) * scale;
  }
  template <class Visit>
  void buffers(Visit visit) {
    visit(x, items);
    visit(dy, items);
    visit(used, 2 * channels + 1);
    visit(sums, 2 * channels);
    visit(weight, channels);
    visit(dx, items);
  }
};

}  // namespace unisono::train::kernels
