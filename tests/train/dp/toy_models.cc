// Exact toy models; see the header.
#include "tests/train/dp/toy_models.h"

#include <numeric>
#include <stdexcept>

namespace unisono::train {
namespace {

void refuse_forbidden(const Tensor& inputs) {
  for (const float value : inputs.values()) {
    if (value == kForbidden) throw std::runtime_error("forbidden input");
  }
}

double half_squares_of(const Tensor& outputs, std::span<const std::int32_t> targets,
                       Tensor* gradient, float scale, bool samples_last) {
  const std::size_t samples = samples_last ? outputs.shape().back() : outputs.dim(0);
  if (targets.size() != samples) throw std::invalid_argument("targets are not the samples'");
  const std::size_t width = outputs.size() / samples;
  if (gradient != nullptr) *gradient = Tensor(outputs.shape());
  double sum = 0;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::size_t sample = samples_last ? i % samples : i / width;
    const float off = outputs.data()[i] - static_cast<float>(targets[sample]);
    sum += 0.5 * static_cast<double>(off) * static_cast<double>(off);
    if (gradient != nullptr) gradient->data()[i] = off * scale / static_cast<float>(samples);
  }
  return sum / static_cast<double>(samples);
}

}  // namespace

ToyLinear::ToyLinear(std::size_t inputs, std::size_t outputs, bool samples_last)
    : inputs_(inputs), outputs_(outputs), samples_last_(samples_last) {
  for (Arena* arena : {&parameters_, &gradients_}) {
    arena->add("weight", {outputs, inputs});
    arena->allocate();
  }
  buffers_.add("samples_seen", {1});
  buffers_.allocate();
  for (std::size_t i = 0; i < parameters_.values().size(); ++i) {
    parameters_.values()[i] = static_cast<float>(i % 5) - 2.0F;
  }
}

float ToyLinear::at(const Tensor& tensor, std::size_t sample, std::size_t feature) const {
  return tensor
      .data()[samples_last_ ? feature * tensor.dim(1) + sample : sample * tensor.dim(1) + feature];
}

float& ToyLinear::at(Tensor& tensor, std::size_t sample, std::size_t feature) const {
  return tensor
      .data()[samples_last_ ? feature * tensor.dim(1) + sample : sample * tensor.dim(1) + feature];
}

Tensor ToyLinear::forward(const Tensor& inputs, Pass& pass) {
  refuse_forbidden(inputs);
  const std::size_t samples = inputs.dim(samples_last_ ? 1 : 0);
  Tensor outputs(samples_last_ ? Shape{outputs_, samples} : Shape{samples, outputs_});
  for (std::size_t s = 0; s < samples; ++s) {
    for (std::size_t o = 0; o < outputs_; ++o) {
      float sum = 0;
      for (std::size_t i = 0; i < inputs_; ++i) {
        sum += at(inputs, s, i) * parameters_.values()[o * inputs_ + i];
      }
      at(outputs, s, o) = sum;
    }
  }
  if (pass.training) {
    buffers_.values()[0] += static_cast<float>(samples);
    kept_ = inputs;
  }
  return outputs;
}

void ToyLinear::backward(const Tensor& output_gradient, Pass&) {
  const Tensor inputs = std::move(kept_);
  const std::size_t samples = inputs.dim(samples_last_ ? 1 : 0);
  for (std::size_t s = 0; s < samples; ++s) {
    for (std::size_t o = 0; o < outputs_; ++o) {
      for (std::size_t i = 0; i < inputs_; ++i) {
        gradients_.values()[o * inputs_ + i] += at(output_gradient, s, o) * at(inputs, s, i);
      }
    }
  }
}

std::unique_ptr<Model> ToyLinear::clone() const { return std::make_unique<ToyLinear>(*this); }

ToyTwins::ToyTwins(std::size_t n) {
  for (Arena* arena : {&parameters_, &gradients_}) {
    arena->add("a", {n});
    arena->add("b", {n});
    arena->allocate();
  }
  std::iota(parameters_.values().begin(), parameters_.values().end(), 1.0F);
}

std::vector<Tensor> ToyTwins::forward_named(const NamedTensors& inputs, Pass&) {
  kept_ = inputs;
  std::vector<Tensor> outputs;
  int parameter = 0;
  for (const char* name : {"left", "right"}) {
    Tensor output = inputs.at(name);
    const std::span<const float> factors = parameters_[parameter++];
    for (std::size_t i = 0; i < output.size(); ++i) output.data()[i] *= factors[i % factors.size()];
    outputs.push_back(std::move(output));
  }
  return outputs;
}

void ToyTwins::backward_named(std::span<const Tensor> output_gradients, Pass&) {
  int parameter = 0;
  for (const char* name : {"left", "right"}) {
    const Tensor& input = kept_.at(name);
    const std::span<float> gradient = gradients_[parameter];
    const Tensor& by_output = output_gradients[static_cast<std::size_t>(parameter++)];
    for (std::size_t i = 0; i < input.size(); ++i) {
      gradient[i % gradient.size()] += by_output.data()[i] * input.data()[i];
    }
  }
}

std::unique_ptr<Model> ToyTwins::clone() const { return std::make_unique<ToyTwins>(*this); }

ToyInnerLoss::ToyInnerLoss() {
  for (Arena* arena : {&parameters_, &gradients_}) {
    arena->add("weight", {1});
    arena->allocate();
  }
  parameters_.values()[0] = 3.0F;
}

std::vector<Tensor> ToyInnerLoss::forward_named(const NamedTensors& inputs, Pass&) {
  const std::span<const float> x = inputs.at("x").values();
  mean_ = std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
  std::vector<Tensor> outputs;
  outputs.emplace_back(Shape{});
  outputs[0].data()[0] = static_cast<float>(mean_) * parameters_.values()[0];
  return outputs;
}

void ToyInnerLoss::backward_named(std::span<const Tensor> output_gradients, Pass&) {
  gradients_.values()[0] += output_gradients[0].data()[0] * static_cast<float>(mean_);
}

std::unique_ptr<Model> ToyInnerLoss::clone() const { return std::make_unique<ToyInnerLoss>(*this); }

double half_squares(const Tensor& outputs, std::span<const std::int32_t> targets, Tensor* gradient,
                    float scale) {
  return half_squares_of(outputs, targets, gradient, scale, false);
}

double half_squares_last(const Tensor& outputs, std::span<const std::int32_t> targets,
                         Tensor* gradient, float scale) {
  return half_squares_of(outputs, targets, gradient, scale, true);
}

Tensor integers(Shape shape, std::uint32_t seed) {
  Tensor tensor(std::move(shape));
  for (float& value : tensor.values()) {
    seed = seed * 1664525U + 1013904223U;
    value = static_cast<float>(static_cast<int>(seed >> 29) - 4);
  }
  return tensor;
}

Batch integer_batch(std::size_t samples, std::size_t inputs, std::uint32_t seed) {
  Batch batch;
  batch.inputs = integers({samples, inputs}, seed);
  for (std::size_t i = 0; i < samples; ++i) {
    batch.targets.push_back(static_cast<std::int32_t>((i * 7 + seed) % 5));
    batch.indices.push_back(i);
  }
  return batch;
}

std::vector<int> device_list(int devices) {
  std::vector<int> list(static_cast<std::size_t>(devices));
  std::iota(list.begin(), list.end(), 0);
  return list;
}

OptimizerFactory plain_sgd() {
  return [](std::size_t count) { return make_sgd(count, {.momentum = 0.0F}); };
}

std::vector<float> values_of(const Tensor& tensor) {
  return {tensor.values().begin(), tensor.values().end()};
}

std::vector<float> parameters_of(Model& model) {
  return {model.parameters().values().begin(), model.parameters().values().end()};
}

}  // namespace unisono::train
