// Convolutions, pooling and normalisation by channel, against plain loops in double.
#include <cmath>

#include "tests/support/watchdog.h"
#include "tests/train/cuda/fixture.h"

namespace unisono::test {
namespace {

using train::Convolution;
using train::Image;
using train::Pooling;

class ImageCalls : public testing::Test {
 protected:
  const std::shared_ptr<train::Backend> backend = make_backend();
};

Convolution convolution(Image input, std::size_t filters, std::size_t kernel, std::size_t padding) {
  return {
      input,
      {filters, input.height + 2 * padding - kernel + 1, input.width + 2 * padding - kernel + 1},
      kernel,
      padding};
}

/// Calls visit(input element, output element, weight) for every product in a convolution.
template <typename Visit>
void for_each_product(const Convolution& shape, std::size_t samples, Visit visit) {
  const auto& [input, output, kernel, padding] = shape;
  for (std::size_t at = 0; at < samples * output.size() * shape.taps(); ++at) {
    const std::size_t out = at / shape.taps(), tap = at % shape.taps();
    const std::size_t sample = out / output.size(), f = out / output.plane() % output.channels;
    const std::size_t channel = tap / (kernel * kernel);
    const std::size_t y = out % output.plane() / output.width + tap / kernel % kernel;
    const std::size_t x = out % output.width + tap % kernel;
    if (y < padding || y >= input.height + padding) continue;
    if (x < padding || x >= input.width + padding) continue;
    visit((sample * input.channels + channel) * input.plane() + (y - padding) * input.width + x -
              padding,
          out, f * shape.taps() + tap);
  }
}

void check_convolution(train::Backend& backend, const Convolution& shape, std::size_t samples,
                       double tolerance = 1e-5) {
  const std::size_t filters = shape.output.channels;
  const Floats x = random_values(samples * shape.input.size(), 1);
  const Floats weight = random_values(filters * shape.taps(), 2), bias = random_values(filters, 3);
  const Floats dy = random_values(samples * shape.output.size(), 4);
  const Floats before = random_values(weight.size() + filters, 5);
  Doubles y(dy.size()), dx(x.size()), gradients = widened(before);
  for (std::size_t out = 0; out < y.size(); ++out) {
    const std::size_t f = out / shape.output.plane() % filters;
    y[out] = static_cast<double>(bias[f]);
    gradients[weight.size() + f] += static_cast<double>(dy[out]);
  }
  for_each_product(shape, samples, [&](std::size_t in, std::size_t out, std::size_t tap) {
    y[out] += static_cast<double>(x[in]) * static_cast<double>(weight[tap]);
    dx[in] += static_cast<double>(dy[out]) * static_cast<double>(weight[tap]);
    gradients[tap] += static_cast<double>(dy[out]) * static_cast<double>(x[in]);
  });

  const DeviceFloats inputs(backend, x), weights(backend, weight), biases(backend, bias),
      slopes(backend, dy);
  expect_near(
      computed(backend, unwritten(y.size()),
               [&](float* to) { backend.convolve(shape, samples, inputs, weights, biases, to); }),
      y, tolerance);
  expect_near(computed(backend, before,
                       [&](float* to) {
                         backend.convolution_weight_gradient(shape, samples, inputs, slopes, to,
                                                             to + weight.size());
                       }),
              gradients, tolerance);
  expect_near(computed(backend, unwritten(dx.size()),
                       [&](float* to) {
                         backend.convolution_input_gradient(shape, samples, slopes, weights, to);
                       }),
              dx, tolerance);
}

TEST_F(ImageCalls, Convolutions) {
  check_convolution(*backend, convolution({1, 1, 1}, 1, 1, 0), 1);
  check_convolution(*backend, convolution({3, 7, 5}, 4, 3, 1), 5);
  check_convolution(*backend, convolution({2, 9, 6}, 3, 5, 0), 2);
  check_convolution(*backend, convolution({2, 2, 3}, 5, 3, 2), 3);
  check_convolution(*backend, convolution({3, 7, 5}, 4, 3, 1), 0);
}

TEST_F(ImageCalls, ConvolutionsOfMoreSamplesThanFitIntoScratchMemory) {
  if (is_thread_sanitized()) GTEST_SKIP() << "much arithmetic of one thread";
  // The windows of a sample are 9 MB: seven at a time. Sums of 90,000 terms in fp32.
  check_convolution(*backend, convolution({1, 300, 310}, 1, 5, 0), 9, 2e-4);
}

TEST_F(ImageCalls, MaxPool) {
  for (const Pooling& shape : {Pooling{{1, 1, 1}, {1, 1, 1}, 1}, Pooling{{3, 7, 9}, {3, 3, 4}, 2},
                               Pooling{{2, 8, 6}, {2, 2, 2}, 3}}) {
    for (const std::size_t samples : {0, 1, 5}) {
      Floats x = random_values(samples * shape.input.size(), 1);
      // Equal maxima: the first one counts.
      for (float& value : x) value = std::round(value * 2);
      const Floats dy = random_values(samples * shape.output.size(), 2);
      Doubles y, dx(x.size());
      for (std::size_t out = 0; out < dy.size(); ++out) {
        const std::size_t plane = out / shape.output.plane();
        const std::size_t row = out % shape.output.plane() / shape.output.width;
        const std::size_t column = out % shape.output.width;
        const auto at = [&](std::size_t n) {
          return plane * shape.input.plane() +
                 (row * shape.size + n / shape.size) * shape.input.width + column * shape.size +
                 n % shape.size;
        };
        std::size_t best = at(0);
        for (std::size_t n = 1; n < shape.size * shape.size; ++n) {
          if (x[at(n)] > x[best]) best = at(n);
        }
        y.push_back(static_cast<double>(x[best]));
        dx[best] = static_cast<double>(dy[out]);
      }
      const DeviceFloats inputs(*backend, x), slopes(*backend, dy);
      expect_near(computed(*backend, unwritten(y.size()),
                           [&](float* to) { backend->max_pool(shape, samples, inputs, to); }),
                  y, 0);
      expect_near(computed(*backend, unwritten(x.size()),
                           [&](float* to) {
                             backend->max_pool_gradient(shape, samples, inputs, slopes, to);
                           }),
                  dx, 0);
    }
  }
}

void check_channels(train::Backend& backend, const Image& image, std::size_t rows) {
  const std::size_t channels = image.channels, plane = image.plane(), count = rows * image.size();
  const auto channel = [&](std::size_t i) { return i / plane % channels; };
  Floats x = random_values(count, 1);
  for (float& value : x) value += 3;  // far from zero: squares must be about the mean
  const Floats dy = random_values(count, 2), weight = random_values(channels, 3),
               bias = random_values(channels, 4);
  const auto n = static_cast<double>(rows * plane);
  Doubles moments(2 * channels), sums(2 * channels);
  for (std::size_t i = 0; i < count; ++i) moments[channel(i)] += static_cast<double>(x[i]) / n;
  for (std::size_t i = 0; i < count; ++i) {
    moments[channels + channel(i)] +=
        std::pow(static_cast<double>(x[i]) - moments[channel(i)], 2) / n;
  }
  const DeviceFloats inputs(backend, x), slopes(backend, dy), weights(backend, weight),
      biases(backend, bias);
  const Doubles measured = backend.channel_moments(image, rows, inputs);
  EXPECT_EQ(measured, backend.channel_moments(image, rows, inputs));
  expect_near(Floats(measured.begin(), measured.end()), moments, 1e-5);

  Floats used(2 * channels + 1, static_cast<float>(n));
  for (std::size_t c = 0; c < channels; ++c) {
    used[c] = static_cast<float>(moments[c]);
    used[channels + c] = static_cast<float>(1 / std::sqrt(moments[channels + c] + 1e-5));
  }
  const auto centred = [&](std::size_t i) {
    return static_cast<double>(x[i]) - static_cast<double>(used[channel(i)]);
  };
  const auto of = [&](const Floats& values, std::size_t i) {
    return static_cast<double>(values[channel(i)]);
  };
  const Floats inverses(used.begin() + static_cast<long>(channels), used.end());
  for (std::size_t i = 0; i < count; ++i) {
    sums[channel(i)] += static_cast<double>(dy[i]);
    sums[channels + channel(i)] += static_cast<double>(dy[i]) * centred(i);
  }
  Doubles y, dx;
  for (std::size_t i = 0; i < count; ++i) {
    const double scale = of(weight, i) * of(inverses, i);
    y.push_back(centred(i) * scale + of(bias, i));
    const double slope = sums[channels + channel(i)] / n * std::pow(of(inverses, i), 2);
    dx.push_back((static_cast<double>(dy[i]) - sums[channel(i)] / n - centred(i) * slope) * scale);
  }
  const DeviceFloats statistics(backend, used);
  const DeviceFloats all_sums(backend, Floats(sums.begin(), sums.end()));
  expect_near(computed(backend, unwritten(count),
                       [&](float* to) {
                         backend.normalise_channels(image, rows, inputs, statistics, weights,
                                                    biases, to);
                       }),
              y, 1e-5);
  expect_near(computed(backend, unwritten(2 * channels),
                       [&](float* to) {
                         backend.channel_gradient_sums(image, rows, inputs, slopes, statistics, to);
                       }),
              sums, 1e-5);
  expect_near(computed(backend, unwritten(count),
                       [&](float* to) {
                         backend.normalise_channels_gradient(image, rows, inputs, slopes,
                                                             statistics, all_sums, weights, to);
                       }),
              dx, 1e-5);
}

TEST_F(ImageCalls, NormalisationByChannel) {
  check_channels(*backend, {1, 1, 1}, 7);
  check_channels(*backend, {3, 7, 5}, 1);
  check_channels(*backend, {5, 11, 13}, 31);
  check_channels(*backend, {33, 1, 1}, 100);
}

TEST_F(ImageCalls, NormalisationOfNoRows) {
  const train::Image image{3, 2, 2};
  const DeviceFloats none(*backend, {}), statistics(*backend, Floats(7, 1));
  EXPECT_EQ(backend->channel_moments(image, 0, none), Doubles(6, 0.0));
  EXPECT_EQ(computed(*backend, unwritten(6),
                     [&](float* to) {
                       backend->channel_gradient_sums(image, 0, none, none, statistics, to);
                     }),
            Floats(6, 0.0F));
}

}  // namespace
}  // namespace unisono::test
