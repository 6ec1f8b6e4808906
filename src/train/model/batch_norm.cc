// Batch norm over the rows and planes of each channel, and SyncBatchNorm: the same over the rows of
// all ranks.
//
// Ranks hold different numbers of rows, so each gives mean, variance and count (2C + 1 numbers),
// which everyone merges in rank order, weighted by count (Chan, Golub, LeVeque 1979). Backward adds
// two sums per channel over the ranks; the gradients of weight and bias stay local, for they are
// averaged with all others. Running statistics move as (1 - momentum) * old + momentum * new.
#include <cmath>

#include "train/model/layers.h"

namespace unisono::train {
namespace {

/// Per channel, over `count` elements. The variance is the biased one.
struct Statistics {
  explicit Statistics(std::size_t channels) : mean(channels), variance(channels) {}
  std::vector<double> mean, variance;
  double count = 0;
};

/// Takes one more part into `all`.
void merge(Statistics& all, std::span<const float> part) {
  const std::size_t channels = all.mean.size();
  const double count = static_cast<double>(part[2 * channels]);
  if (count == 0) return;
  const double total = all.count + count;
  for (std::size_t c = 0; c < channels; ++c) {
    const double delta = static_cast<double>(part[c]) - all.mean[c];
    const double variance = static_cast<double>(part[channels + c]);
    all.mean[c] += delta * count / total;
    all.variance[c] = (all.variance[c] * all.count + variance * count +
                       delta * delta * all.count * count / total) /
                      total;
  }
  all.count = total;
}

void exchange_statistics(Statistics& statistics, StatisticsExchange& exchange) {
  const std::size_t channels = statistics.mean.size();
  std::vector<float> mine;
  for (const double mean : statistics.mean) mine.push_back(static_cast<float>(mean));
  for (const double variance : statistics.variance) mine.push_back(static_cast<float>(variance));
  mine.push_back(static_cast<float>(statistics.count));
  std::vector<float> all(mine.size() * static_cast<std::size_t>(exchange.ranks()));
  exchange.all_gather(mine, all);
  statistics = Statistics(channels);
  for (std::size_t at = 0; at < all.size(); at += mine.size()) {
    merge(statistics, std::span<const float>(all).subspan(at, mine.size()));
  }
}

class BatchNorm final : public Layer {
 public:
  BatchNorm(Image input, float momentum, float epsilon)
      : input_(input), momentum_(momentum), epsilon_(epsilon) {}

  void declare(Declaration& declaration) override {
    weight_ = declaration.parameter("weight", {input_.channels});
    bias_ = declaration.parameter("bias", {input_.channels});
    running_mean_ = declaration.buffer("running_mean", {input_.channels});
    running_variance_ = declaration.buffer("running_var", {input_.channels});
  }

  void initialise(Arena& parameters, Arena& buffers, Random&) const override {
    for (float& value : parameters[weight_]) value = 1;
    for (float& value : buffers[running_variance_]) value = 1;
  }

  std::size_t batch_norms() const override { return 1; }

  Tensor forward(const Tensor& input, Call& call, Saved* saved) const override {
    const std::size_t channels = input_.channels;
    Statistics statistics(channels);
    if (call.pass.training) {
      statistics = measured(input);
      if (auto* exchange = exchange_of(call)) exchange_statistics(statistics, *exchange);
      if (call.pass.update_buffers) move_running(statistics, call.buffers);
    } else {
      const auto mean = call.buffers[running_mean_], variance = call.buffers[running_variance_];
      statistics.mean.assign(mean.begin(), mean.end());
      statistics.variance.assign(variance.begin(), variance.end());
    }
    Tensor used({2 * channels + 1});  // mean, inverse deviation, count
    for (std::size_t c = 0; c < channels; ++c) {
      used.data()[c] = static_cast<float>(statistics.mean[c]);
      used.data()[channels + c] =
          static_cast<float>(1 / std::sqrt(statistics.variance[c] + static_cast<double>(epsilon_)));
    }
    used.data()[2 * channels] = static_cast<float>(statistics.count);
    Tensor output = normalised(input, used.data(), call.use(weight_), call.use(bias_));
    if (saved != nullptr) saved->tensors.push_back(std::move(used));
    return output;
  }

  Tensor backward(const Tensor& input, const Tensor& output_gradient, Call& call,
                  Saved& saved) const override {
    const std::size_t channels = input_.channels;
    const float* mean = saved.tensors[0].data();
    const float* inverse = mean + channels;
    // First sum of dy by channel, then of dy * (x - mean).
    std::vector<float> sums = gradient_sums(input, output_gradient, mean);
    const auto weight = call.gradients[weight_], bias = call.gradients[bias_];
    for (std::size_t c = 0; c < channels; ++c) {
      bias[c] += sums[c];
      weight[c] += sums[channels + c] * inverse[c];
    }
    call.ready(bias_);
    call.ready(weight_);
    if (auto* exchange = exchange_of(call)) exchange->all_reduce_sum(sums);
    if (!call.input_gradient) return {};
    return input_gradient(input, output_gradient, saved.tensors[0].data(), sums,
                          call.parameters[weight_]);
  }

 private:
  static StatisticsExchange* exchange_of(const Call& call) {
    return call.sync_batch_norm ? call.pass.statistics : nullptr;
  }

  /// Calls visit(channel, first element) for every plane of every row.
  template <typename Visit>
  void for_each_plane(std::size_t rows, Visit visit) const {
    std::size_t at = 0;
    for (std::size_t n = 0; n < rows; ++n) {
      for (std::size_t c = 0; c < input_.channels; ++c, at += input_.plane()) visit(c, at);
    }
  }

  Statistics measured(const Tensor& input) const {
    const std::size_t plane = input_.plane();
    Statistics result(input_.channels);
    result.count = static_cast<double>(input.dim(0) * plane);
    if (result.count == 0) return result;
    const float* x = input.data();
    for_each_plane(input.dim(0), [&](std::size_t c, std::size_t at) {
      result.mean[c] += lane_sum(x + at, plane);
    });
    for (double& mean : result.mean) mean /= result.count;
    for_each_plane(input.dim(0), [&](std::size_t c, std::size_t at) {
      result.variance[c] += lane_squares(x + at, plane, static_cast<float>(result.mean[c]));
    });
    for (double& variance : result.variance) variance /= result.count;
    return result;
  }

  void move_running(const Statistics& statistics, Arena& buffers) const {
    if (statistics.count == 0) return;
    // The unbiased variance of a single value is not known; its biased one, 0, is taken.
    const double unbiased = statistics.count > 1 ? statistics.count / (statistics.count - 1) : 1;
    const auto mean = buffers[running_mean_], variance = buffers[running_variance_];
    for (std::size_t c = 0; c < input_.channels; ++c) {
      const auto new_mean = static_cast<float>(statistics.mean[c]);
      const auto new_variance = static_cast<float>(statistics.variance[c] * unbiased);
      mean[c] = (1 - momentum_) * mean[c] + momentum_ * new_mean;
      variance[c] = (1 - momentum_) * variance[c] + momentum_ * new_variance;
    }
  }

  Tensor normalised(const Tensor& input, const float* used, std::span<const float> weight,
                    std::span<const float> bias) const {
    Tensor output = Tensor::uninitialised(input.shape());
    const std::size_t plane = input_.plane();
    for_each_plane(input.dim(0), [&](std::size_t c, std::size_t at) {
      const float mean = used[c], scale = weight[c] * used[input_.channels + c], shift = bias[c];
      const float* x = input.data() + at;
      float* y = output.data() + at;
      for (std::size_t i = 0; i < plane; ++i) y[i] = (x[i] - mean) * scale + shift;
    });
    return output;
  }

  std::vector<float> gradient_sums(const Tensor& input, const Tensor& output_gradient,
                                   const float* mean) const {
    const std::size_t plane = input_.plane();
    std::vector<double> sums(2 * input_.channels);
    for_each_plane(input.dim(0), [&](std::size_t c, std::size_t at) {
      const float* dy = output_gradient.data() + at;
      sums[c] += lane_sum(dy, plane);
      sums[input_.channels + c] += lane_centred_dot(dy, input.data() + at, plane, mean[c]);
    });
    std::vector<float> result;
    for (const double sum : sums) result.push_back(static_cast<float>(sum));
    return result;
  }

  /// `sums` and the saved count are over all ranks where they take part.
  Tensor input_gradient(const Tensor& input, const Tensor& output_gradient, const float* used,
                        const std::vector<float>& sums, std::span<const float> weight) const {
    const std::size_t channels = input_.channels, plane = input_.plane();
    const float *mean = used, *inverse = used + channels;
    const float count = used[2 * channels];
    Tensor gradient = Tensor::uninitialised(input.shape());
    for_each_plane(input.dim(0), [&](std::size_t c, std::size_t at) {
      const float *x = input.data() + at, *dy = output_gradient.data() + at;
      float* dx = gradient.data() + at;
      const float centre = mean[c], mean_dy = sums[c] / count, scale = weight[c] * inverse[c];
      const float slope = sums[channels + c] / count * inverse[c] * inverse[c];
      for (std::size_t i = 0; i < plane; ++i) {
        dx[i] = (dy[i] - mean_dy - (x[i] - centre) * slope) * scale;
      }
    });
    return gradient;
  }

  Image input_;
  float momentum_, epsilon_;
  int weight_ = -1, bias_ = -1, running_mean_ = -1, running_variance_ = -1;
};

}  // namespace

std::shared_ptr<Layer> make_batch_norm(Image input, float momentum, float epsilon) {
  return std::make_shared<BatchNorm>(input, momentum, epsilon);
}

}  // namespace unisono::train
