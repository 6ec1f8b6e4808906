// What a batch norm computes: each channel over the planes of all rows.
#include "train/host/host_backend.h"
#include "train/host/lane_sums.h"

namespace unisono::train {
namespace {

/// Calls visit(channel, first element) for every plane of every row.
template <typename Visit>
void for_each_plane(const Image& image, std::size_t rows, Visit visit) {
  std::size_t at = 0;
  for (std::size_t n = 0; n < rows; ++n) {
    for (std::size_t c = 0; c < image.channels; ++c, at += image.plane()) visit(c, at);
  }
}

}  // namespace

std::vector<double> HostBackend::channel_moments(const Image& image, std::size_t rows,
                                                 const float* x) {
  const std::size_t plane = image.plane(), channels = image.channels;
  std::vector<double> moments(2 * channels);
  const auto count = static_cast<double>(rows * plane);
  if (count == 0) return moments;
  double *const mean = moments.data(), *const variance = mean + channels;
  for_each_plane(image, rows,
                 [&](std::size_t c, std::size_t at) { mean[c] += lane_sum(x + at, plane); });
  for (std::size_t c = 0; c < channels; ++c) mean[c] /= count;
  for_each_plane(image, rows, [&](std::size_t c, std::size_t at) {
    variance[c] += lane_squares(x + at, plane, static_cast<float>(mean[c]));
  });
  for (std::size_t c = 0; c < channels; ++c) variance[c] /= count;
  return moments;
}

void HostBackend::normalise_channels(const Image& image, std::size_t rows, const float* x,
                                     const float* used, const float* weight, const float* bias,
                                     float* y) {
  const std::size_t plane = image.plane();
  for_each_plane(image, rows, [&](std::size_t c, std::size_t at) {
    const float mean = used[c], scale = weight[c] * used[image.channels + c], shift = bias[c];
    const float* from = x + at;
    float* to = y + at;
    for (std::size_t i = 0; i < plane; ++i) to[i] = (from[i] - mean) * scale + shift;
  });
}

void HostBackend::channel_gradient_sums(const Image& image, std::size_t rows, const float* x,
                                        const float* dy, const float* used, float* sums) {
  const std::size_t plane = image.plane(), channels = image.channels;
  std::vector<double> totals(2 * channels);
  for_each_plane(image, rows, [&](std::size_t c, std::size_t at) {
    totals[c] += lane_sum(dy + at, plane);
    totals[channels + c] += lane_centred_dot(dy + at, x + at, plane, used[c]);
  });
  for (std::size_t i = 0; i < totals.size(); ++i) sums[i] = static_cast<float>(totals[i]);
}

void HostBackend::normalise_channels_gradient(const Image& image, std::size_t rows, const float* x,
                                              const float* dy, const float* used, const float* sums,
                                              const float* weight, float* dx) {
  const std::size_t channels = image.channels, plane = image.plane();
  const float* inverse = used + channels;
  const float count = used[2 * channels];
  for_each_plane(image, rows, [&](std::size_t c, std::size_t at) {
    const float *value = x + at, *gradient = dy + at;
    float* to = dx + at;
    const float centre = used[c], mean_dy = sums[c] / count, scale = weight[c] * inverse[c];
    const float slope = sums[channels + c] / count * inverse[c] * inverse[c];
    for (std::size_t i = 0; i < plane; ++i) {
      to[i] = (gradient[i] - mean_dy - (value[i] - centre) * slope) * scale;
    }
  });
}

}  // namespace unisono::train
