// Normalisation by channel and by row.
#include <algorithm>
#include <cmath>

#include "train/cuda/gpu_backend.h"

namespace unisono::train {

// A channel has about as many partial sums as each of them has terms: both stages take as long.
kernels::ChannelWalk GpuBackend::walk_of(const Image& image, std::size_t rows, std::size_t* parts) {
  constexpr std::size_t kLanesMax = 32;  // of a warp
  const std::size_t lanes = std::min(image.plane(), kLanesMax);
  const auto root = static_cast<std::size_t>(std::sqrt(static_cast<double>(rows * image.plane())));
  const std::size_t wanted = std::clamp(root / lanes, std::size_t{1}, rows);
  const std::size_t length = (rows + wanted - 1) / wanted;
  *parts = (rows + length - 1) / length * lanes;
  return {rows, image.channels, image.plane(), length, lanes};
}

void GpuBackend::add_channel_sums(const Image& image, std::size_t rows, const float* x,
                                  float* sums) {
  std::size_t parts = 0;
  const kernels::ChannelWalk walk = walk_of(image, rows, &parts);
  const Temporary<double> partial(blocks_, parts * image.channels);
  launch(kernels::ChannelSums{parts * image.channels, walk, x, partial.get()});
  launch(kernels::AddTotals{image.channels, parts, image.channels, partial.get(), sums});
}

std::vector<double> GpuBackend::channel_moments(const Image& image, std::size_t rows,
                                                const float* x) {
  const std::size_t channels = image.channels;
  std::vector<double> moments(2 * channels);
  if (rows * image.size() == 0) return moments;
  std::size_t parts = 0;
  const kernels::ChannelWalk walk = walk_of(image, rows, &parts);
  const auto count = static_cast<double>(rows * image.plane());
  const std::size_t items = parts * channels;
  const Temporary<double> partial(blocks_, items), result(blocks_, 2 * channels);
  double *means = result.get(), *variances = means + channels;
  launch(kernels::ChannelSums{items, walk, x, partial.get()});
  launch(kernels::MeanTotals{channels, parts, channels, partial.get(), count, means});
  launch(kernels::ChannelSquares{items, walk, x, means, partial.get()});
  launch(kernels::MeanTotals{channels, parts, channels, partial.get(), count, variances});
  download(means, 2 * channels * sizeof(double), moments.data());
  return moments;
}

void GpuBackend::normalise_channels(const Image& image, std::size_t rows, const float* x,
                                    const float* used, const float* weight, const float* bias,
                                    float* y) {
  launch(kernels::NormaliseChannels{rows * image.size(), image.channels, image.plane(), x, used,
                                    weight, bias, y});
}

void GpuBackend::channel_gradient_sums(const Image& image, std::size_t rows, const float* x,
                                       const float* dy, const float* used, float* sums) {
  const std::size_t columns = 2 * image.channels;
  if (rows * image.size() == 0) return fill(sums, columns, 0);
  std::size_t parts = 0;
  const kernels::ChannelWalk walk = walk_of(image, rows, &parts);
  const Temporary<double> partial(blocks_, parts * columns);
  launch(kernels::ChannelGradients{parts * image.channels, walk, x, dy, used, partial.get()});
  launch(kernels::StoreTotals{columns, parts, columns, partial.get(), sums});
}

void GpuBackend::normalise_channels_gradient(const Image& image, std::size_t rows, const float* x,
                                             const float* dy, const float* used, const float* sums,
                                             const float* weight, float* dx) {
  launch(kernels::NormaliseChannelsGradient{rows * image.size(), image.channels, image.plane(), x,
                                            dy, used, sums, weight, dx});
}

void GpuBackend::layer_norm(const LayerNormalisation& shape, const float* x, const float* weight,
                            const float* bias, float* y) {
  const auto [rows, features, epsilon] = shape;
  const Temporary<float> moments(blocks_, 2 * rows);
  launch(kernels::RowMoments{rows, features, epsilon, x, moments.get()});
  launch(kernels::NormaliseRows{rows * features, features, x, moments.get(), weight, bias, y});
}

void GpuBackend::layer_norm_gradient(const LayerNormalisation& shape, const float* x,
                                     const float* dy, const float* weight, float* weight_gradient,
                                     float* bias_gradient, float* dx) {
  const auto [rows, features, epsilon] = shape;
  if (rows * features == 0) return;
  const Temporary<float> moments(blocks_, 2 * rows), levels(blocks_, 2 * rows);
  launch(kernels::RowMoments{rows, features, epsilon, x, moments.get()});

  const kernels::Segments segments = kernels::segments_of(rows);
  const Temporary<double> parts(blocks_, segments.count * 2 * features);
  launch(kernels::NormaliseRowsSums{segments.count * features, rows, features, segments.length, x,
                                    dy, moments.get(), parts.get()});
  launch(kernels::AddTotals{features, segments.count, 2 * features, parts.get(), weight_gradient});
  launch(kernels::AddTotals{features, segments.count, 2 * features, parts.get() + features,
                            bias_gradient});

  launch(kernels::RowSlopes{rows, features, x, dy, moments.get(), weight, levels.get()});
  launch(kernels::NormaliseRowsGradient{rows * features, features, x, dy, moments.get(),
                                        levels.get(), weight, dx});
}

}  // namespace unisono::train
