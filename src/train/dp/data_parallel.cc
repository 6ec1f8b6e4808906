// The three strategies over Replicas: how the batch is cut and where the loss is computed.
#include "unisono/train/data_parallel.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "train/dp/device_exchange.h"
#include "train/dp/replicas.h"
#include "train/dp/step_inputs.h"
#include "train/dp/step_meter.h"
#include "unisono/train/scatter_chunks.h"

namespace unisono::train {
namespace {

OutputsLoss loss_of(const DataParallelOptions& options) {
  if (options.outputs_loss) return options.outputs_loss;
  LossFunction loss = options.loss ? options.loss : LossFunction(cross_entropy);
  return [loss = std::move(loss)](const LossCall& call) {
    if (call.outputs.size() != 1) {
      throw std::invalid_argument("a loss of one output was given " +
                                  std::to_string(call.outputs.size()) + "; set outputs_loss");
    }
    return loss(call.outputs[0], call.targets,
                call.gradients.empty() ? nullptr : &call.gradients[0], call.scale);
  };
}

std::vector<std::size_t> without_zeros(std::vector<std::size_t> chunks) {
  std::erase(chunks, 0U);
  return chunks;
}

}  // namespace

class DataParallel::Impl {
 public:
  Impl(std::unique_ptr<Model> model, const OptimizerFactory& factory, DataParallelOptions options)
      : options_(std::move(options)),
        devices_(checked_devices(options_.devices)),
        output_(options_.output_device ? index_of(devices_, *options_.output_device) : 0),
        loss_(loss_of(options_)),
        replicas_(std::move(model), devices_, options_.threads_per_step, options_.gpus),
        meter_(replicas_.group()) {
    replicas_.group().run_on(
        0, [&](Device&) { optimizer_ = factory(replicas_.first().parameters().values().size()); });
  }

  double backward(const InputView& inputs, std::span<const std::int32_t> targets, float scale) {
    check(inputs);  // outside of the try: it costs no gradients
    try {
      Predictions predictions = predict(inputs, true);
      const double loss = options_.parallel_loss
                              ? parallel_loss(std::move(predictions), targets, scale)
                              : gathered_loss(std::move(predictions), targets, scale);
      meter_.note_loss(loss);
      return loss;
    } catch (...) {
      forget_gradients();
      throw;
    }
  }

  Predictions predict(const InputView& inputs, bool training) {
    const std::vector<std::size_t> chunks = chunks_of(check(inputs));
    meter_.begin(chunks);
    chunks_.clear();  // whatever fails below: the replicas keep nothing of an earlier pass
    pass_.training = training;
    pass_.seed = options_.seed;
    pass_.step = optimizer_->steps();
    pass_.micro_batch = training ? passes_++ * devices_.size() : 0;
    replicas_.replicate(chunks.size(), options_.broadcast_buffers);
    std::vector<NamedTensors> mine =
        replicas_.scatter(inputs, options_.dim, chunks, options_.inputs_on_first_device);
    Predictions predictions{replicas_.apply(std::move(mine), chunks, pass_), chunks};
    joined_ = join_outputs(predictions.devices, options_.dim);
    if (training) chunks_ = chunks;
    return predictions;
  }

  double criterion(const Predictions& predictions, std::span<const std::int32_t> targets) {
    check(predictions);
    DeviceTensors none(predictions.devices.size());
    const std::vector<float> factors = weights(predictions.chunks);
    return scattered_loss(predictions, targets, factors, factors, none);
  }

  std::vector<Tensor> gather(const Predictions& predictions, std::optional<int> device) {
    check(predictions);
    if (!device) return replicas_.copy_out(predictions.devices, options_.dim);
    return replicas_.gather(predictions.devices, options_.dim, index_of(devices_, *device));
  }

  std::vector<Tensor> gather_outputs(const Predictions& predictions) {
    return replicas_.gather(predictions.devices, options_.dim, output_);
  }

  void propagate(const std::vector<Tensor>& gradients) {
    check_gradients(gradients);  // outside of the try: it costs no gradients
    try {
      finish(replicas_.send_back(gradients, joined_, chunks_.size(), output_));
    } catch (...) {
      forget_gradients();
      throw;
    }
  }

  void update(float learning_rate) {
    replicas_.group().run_on(0, [&](Device&) {
      Model& model = replicas_.first();
      train::step(*optimizer_, model, learning_rate);
      model.gradients().zero();
    });
    end_step();
  }

  Model& model() { return replicas_.first(); }
  Optimizer& optimizer() { return *optimizer_; }
  std::size_t devices() const { return devices_.size(); }
  void set_memory_limit(int device, std::size_t bytes) {
    replicas_.group()[index_of(devices_, device)].memory.set_limit(bytes);
  }
  StepReport report() { return meter_.report(); }

 private:
  /// Returns the samples of inputs that the model can be given.
  std::size_t check(const InputView& inputs) const {
    const std::size_t samples = samples_of(inputs, options_.dim);
    check_fits(inputs, replicas_.first());
    return samples;
  }

  void check(const Predictions& predictions) const {
    if (predictions.devices.size() == predictions.chunks.size() &&
        predictions.devices.size() <= devices_.size()) {
      return;
    }
    throw std::invalid_argument("predictions of " + std::to_string(predictions.devices.size()) +
                                " devices with " + std::to_string(predictions.chunks.size()) +
                                " chunks; there are " + std::to_string(devices_.size()) +
                                " devices");
  }

  std::vector<std::size_t> chunks_of(std::size_t samples) const {
    if (!options_.first_batch) return even_chunks(samples, devices_.size());
    return balanced_chunks(samples, *options_.first_batch, devices_.size());
  }

  /// What each device's loss counts in the mean; 0 for a device without samples.
  std::vector<float> weights(const std::vector<std::size_t>& chunks) const {
    const auto samples = std::accumulate(chunks.begin(), chunks.end(), std::size_t{0});
    const auto busy = without_zeros(chunks).size();
    std::vector<float> weights(chunks.size());
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      const double equal = chunks[i] == 0 ? 0.0 : 1.0 / static_cast<double>(busy);
      const double share = static_cast<double>(chunks[i]) / static_cast<double>(samples);
      weights[i] = static_cast<float>(options_.weighted_loss ? share : equal);
    }
    return weights;
  }

  double gathered_loss(Predictions predictions, std::span<const std::int32_t> targets,
                       float scale) {
    std::vector<Tensor> outputs = gather_outputs(predictions);
    predictions.devices.clear();
    const std::vector<std::size_t> pieces = without_zeros(chunks_);
    std::vector<Tensor> gradients(outputs.size());
    double loss = 0;
    replicas_.group().run_on(output_, [&](Device&) {
      loss = loss_({outputs, targets, pieces, scale, gradients});
    });
    outputs.clear();
    propagate(gradients);
    return loss;
  }

  double parallel_loss(Predictions predictions, std::span<const std::int32_t> targets,
                       float scale) {
    const std::vector<float> factors = weights(chunks_);
    std::vector<float> gradient_factors = factors;
    for (float& factor : gradient_factors) factor *= scale;
    gradient_factors = scatter_factors(gradient_factors);
    DeviceTensors gradients(chunks_.size());
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      gradients[i].resize(predictions.devices[i].size());
    }
    const double loss = scattered_loss(predictions, targets, factors, gradient_factors, gradients);
    predictions.devices.clear();
    finish(std::move(gradients));
    return loss;
  }

  /// The loss' gradient, a scalar for each device, from the output device.
  std::vector<float> scatter_factors(std::vector<float> factors) {
    const std::size_t among = std::max(factors.size(), output_ + 1);
    factors.resize(among);
    const std::vector<std::size_t> ones(among, 1);
    std::vector<float> mine(among);
    replicas_.group().exchange(among, [&](Device& device) {
      scatter_values(device.among(among), factors.data(), ones,
                     std::span<float>(mine).subspan(device.index, 1), output_);
    });
    return mine;
  }

  /// Scatters the targets, computes the devices' losses where their outputs are and reduces them.
  /// Fills `gradients` where they are wanted (not empty), times the device's gradient factor.
  double scattered_loss(const Predictions& predictions, std::span<const std::int32_t> targets,
                        const std::vector<float>& factors,
                        const std::vector<float>& gradient_factors, DeviceTensors& gradients) {
    DeviceGroup& group = replicas_.group();
    const std::vector<std::vector<std::int32_t>> mine =
        scatter_targets(predictions.chunks, targets);
    const std::size_t among = std::max(mine.size(), output_ + 1);
    std::vector<float> losses(among);
    group.apply(
        [&](const Device& device) {
          return device.index < mine.size() && predictions.chunks[device.index] > 0;
        },
        [&](Device& device) {
          const std::size_t i = device.index;
          const double loss =
              loss_({predictions.devices[i], mine[i], std::span(predictions.chunks).subspan(i, 1),
                     gradient_factors[i], gradients[i]});
          losses[i] = static_cast<float>(loss * static_cast<double>(factors[i]));
        });
    group.exchange(among, [&](Device& device) {
      reduce_values(device.among(among), std::span<float>(losses).subspan(device.index, 1),
                    output_);
    });
    return losses[output_];
  }

  std::vector<std::vector<std::int32_t>> scatter_targets(const std::vector<std::size_t>& chunks,
                                                         std::span<const std::int32_t> targets) {
    const auto samples = std::accumulate(chunks.begin(), chunks.end(), std::size_t{0});
    if (samples == 0 || targets.size() % samples != 0) {
      throw std::invalid_argument(std::to_string(targets.size()) + " targets cannot be scattered " +
                                  "with " + std::to_string(samples) + " samples");
    }
    std::vector<std::size_t> counts;
    std::vector<std::vector<std::int32_t>> mine;
    for (const std::size_t chunk : chunks) {
      counts.push_back(chunk * (targets.size() / samples));
      mine.emplace_back(counts.back());
    }
    replicas_.group().exchange(chunks.size(), [&](Device& device) {
      scatter_values(device.among(chunks.size()), targets.data(), counts, mine[device.index], 0);
    });
    return mine;
  }

  void check_gradients(const std::vector<Tensor>& gradients) const {
    if (chunks_.empty()) {
      throw std::invalid_argument("gradients need outputs of a predict() for training");
    }
    bool alike = gradients.size() == joined_.size();
    for (std::size_t i = 0; alike && i < gradients.size(); ++i) {
      alike = gradients[i].shape() == joined_[i].whole();
    }
    if (alike) return;
    std::string shapes;
    for (const Pieces& pieces : joined_) shapes += ' ' + to_string(pieces.whole());
    throw std::invalid_argument("gradients must have the shapes of the outputs:" + shapes);
  }

  void finish(DeviceTensors gradients) {
    const std::vector<std::size_t> chunks = std::exchange(chunks_, {});
    replicas_.backward(gradients, chunks);
    gradients.clear();
    replicas_.reduce(chunks.size());
  }

  void end_step() {
    passes_ = 0;
    meter_.end();
  }

  void forget_gradients() {
    replicas_.first().gradients().zero();
    chunks_.clear();
    end_step();
  }

  const DataParallelOptions options_;
  const std::vector<int> devices_;
  const std::size_t output_;  ///< index of the output device
  const OutputsLoss loss_;
  Replicas replicas_;
  StepMeter meter_;
  std::unique_ptr<Optimizer> optimizer_;
  Pass pass_;
  std::uint64_t passes_ = 0;         ///< for training, since the last update
  std::vector<Pieces> joined_;       ///< the last outputs
  std::vector<std::size_t> chunks_;  ///< of the pass that waits for its backward; empty: none
};

DataParallel::DataParallel(std::unique_ptr<Model> model, const OptimizerFactory& optimizer,
                           DataParallelOptions options)
    : impl_(std::make_unique<Impl>(std::move(model), optimizer, std::move(options))) {}
DataParallel::~DataParallel() = default;

double DataParallel::step(const Batch& batch, float learning_rate) {
  const double loss = backward(batch);
  update(learning_rate);
  return loss;
}

double DataParallel::backward(const Batch& batch, float scale) {
  return impl_->backward({{"inputs", &batch.inputs}}, batch.targets, scale);
}

double DataParallel::backward(const NamedTensors& inputs, std::span<const std::int32_t> targets,
                              float scale) {
  InputView view;
  for (const auto& [name, tensor] : inputs) view[name] = &tensor;
  return impl_->backward(view, targets, scale);
}

void DataParallel::update(float learning_rate) { impl_->update(learning_rate); }

Tensor DataParallel::forward(const Tensor& inputs) {
  const Predictions predictions = impl_->predict({{"inputs", &inputs}}, false);
  std::vector<Tensor> outputs = impl_->gather_outputs(predictions);
  if (outputs.size() != 1) {
    throw std::invalid_argument("the model has " + std::to_string(outputs.size()) +
                                " outputs; use predict() and gather()");
  }
  return std::move(outputs.front());
}

Predictions DataParallel::predict(const NamedTensors& inputs, bool training) {
  InputView view;
  for (const auto& [name, tensor] : inputs) view[name] = &tensor;
  return impl_->predict(view, training);
}

double DataParallel::criterion(const Predictions& predictions,
                               std::span<const std::int32_t> targets) {
  return impl_->criterion(predictions, targets);
}

std::vector<Tensor> DataParallel::gather(const Predictions& predictions,
                                         std::optional<int> device) {
  return impl_->gather(predictions, device);
}

void DataParallel::propagate(const std::vector<Tensor>& output_gradients) {
  impl_->propagate(output_gradients);
}

Model& DataParallel::model() { return impl_->model(); }
Optimizer& DataParallel::optimizer() { return impl_->optimizer(); }
std::size_t DataParallel::devices() const { return impl_->devices(); }
void DataParallel::set_memory_limit(int device, std::size_t bytes) {
  impl_->set_memory_limit(device, bytes);
}
StepReport DataParallel::report() { return impl_->report(); }

}  // namespace unisono::train
