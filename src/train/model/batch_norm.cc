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
    Statistics statistics(input_.channels);
    if (call.pass.training) {
      statistics = measured(input, call.backend);
      if (auto* exchange = exchange_of(call)) exchange_statistics(statistics, *exchange);
      if (call.pass.update_buffers) move_running(statistics, call);
    } else {
      statistics = running(call);
    }
    Tensor used = used_of(statistics);
    Tensor output = Tensor::uninitialised(input.shape());
    call.backend.normalise_channels(input_, input.dim(0), input.data(), used.data(),
                                    call.use(weight_).data(), call.use(bias_).data(),
                                    output.data());
    if (saved != nullptr) saved->tensors.push_back(std::move(used));
    return output;
  }

  Tensor backward(const Tensor& input, const Tensor& output_gradient, Call& call,
                  Saved& saved) const override {
    const std::size_t channels = input_.channels;
    const float* used = saved.tensors[0].data();
    Tensor sums = Tensor::uninitialised({2 * channels});
    call.backend.channel_gradient_sums(input_, input.dim(0), input.data(), output_gradient.data(),
                                       used, sums.data());
    call.backend.add(sums.data(), channels, call.gradients[bias_].data());
    call.backend.add_products(sums.data() + channels, used + channels, channels,
                              call.gradients[weight_].data());
    call.ready(bias_);
    call.ready(weight_);
    if (auto* exchange = exchange_of(call)) {
      std::vector<float> all = host_copy(call.backend, sums.values());
      exchange->all_reduce_sum(all);
      call.backend.write(all.data(), all.size(), sums.data());
    }
    if (!call.input_gradient) return {};
    Tensor gradient = Tensor::uninitialised(input.shape());
    call.backend.normalise_channels_gradient(input_, input.dim(0), input.data(),
                                             output_gradient.data(), used, sums.data(),
                                             call.parameters[weight_].data(), gradient.data());
    return gradient;
  }

 private:
  static StatisticsExchange* exchange_of(const Call& call) {
    return call.sync_batch_norm ? call.pass.statistics : nullptr;
  }

  Statistics measured(const Tensor& input, Backend& backend) const {
    Statistics result(input_.channels);
    result.count = static_cast<double>(input.dim(0) * input_.plane());
    const std::vector<double> moments = backend.channel_moments(input_, input.dim(0), input.data());
    const auto variances = moments.begin() + static_cast<std::ptrdiff_t>(input_.channels);
    result.mean.assign(moments.begin(), variances);
    result.variance.assign(variances, moments.end());
    return result;
  }

  Statistics running(const Call& call) const {
    Statistics result(input_.channels);
    const std::vector<float> mean = host_copy(call.backend, call.buffers[running_mean_]);
    const std::vector<float> variance = host_copy(call.backend, call.buffers[running_variance_]);
    result.mean.assign(mean.begin(), mean.end());
    result.variance.assign(variance.begin(), variance.end());
    return result;
  }

  /// Mean, inverse deviation, count.
  Tensor used_of(const Statistics& statistics) const {
    std::vector<float> used;
    for (const double mean : statistics.mean) used.push_back(static_cast<float>(mean));
    for (const double variance : statistics.variance) {
      used.push_back(static_cast<float>(1 / std::sqrt(variance + static_cast<double>(epsilon_))));
    }
    used.push_back(static_cast<float>(statistics.count));
    return tensor_of(used);
  }

  void move_running(const Statistics& statistics, Call& call) const {
    if (statistics.count == 0) return;
    // The unbiased variance of a single value is not known; its biased one, 0, is taken.
    const double unbiased = statistics.count > 1 ? statistics.count / (statistics.count - 1) : 1;
    std::vector<float> values;
    for (const double mean : statistics.mean) values.push_back(static_cast<float>(mean));
    for (const double variance : statistics.variance) {
      values.push_back(static_cast<float>(variance * unbiased));
    }
    const std::size_t channels = input_.channels;
    const Tensor measured = tensor_of(values);
    call.backend.mix(1 - momentum_, momentum_, measured.data(), channels,
                     call.buffers[running_mean_].data());
    call.backend.mix(1 - momentum_, momentum_, measured.data() + channels, channels,
                     call.buffers[running_variance_].data());
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
