#include "tests/train/ddp/toy_model.h"

#include <algorithm>
#include <numeric>

namespace unisono::test {
namespace {

// SplitMix64: the same numbers on every machine.
std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

float fraction(std::uint64_t bits) { return static_cast<float>(bits >> 40) / 16777216.0F; }

}  // namespace

ToyModel::ToyModel(ToyOptions options) : options_(std::move(options)) {
  for (std::size_t k = 0; k < options_.counts.size(); ++k) {
    parameters_.add("p" + std::to_string(k), {options_.counts[k]});
    gradients_.add("p" + std::to_string(k), {options_.counts[k]});
  }
  buffers_.add("running_mean", {options_.features});
  parameters_.allocate();
  gradients_.allocate();
  buffers_.allocate();
  std::uint64_t i = 0;
  for (float& value : parameters_.values()) {
    const std::uint64_t bits = mix(options_.seed * 1000 + ++i);
    value = options_.seed == 0 ? static_cast<float>(bits % 5) - 2.0F : fraction(bits) - 0.5F;
  }
}

bool ToyModel::uses(int parameter) const {
  return std::find(unused.begin(), unused.end(), parameter) == unused.end();
}

float ToyModel::noise(std::size_t row, const train::Pass& pass) const {
  if (!options_.has_noise || !pass.training) return 1.0F;
  return 0.5F + fraction(mix(mix(mix(pass.seed) + pass.step) + pass.micro_batch * 1000 + row));
}

train::Tensor ToyModel::forward(const train::Tensor& inputs, train::Pass& pass) {
  inputs_ = inputs;
  const std::size_t rows = inputs.dim(0), features = options_.features;
  train::Tensor outputs({rows, 1});
  for (int k = 0; k < static_cast<int>(options_.counts.size()); ++k) {
    if (!uses(k)) continue;
    if (!pass.used.empty()) pass.used[static_cast<std::size_t>(k)] = 1;
    const std::span<const float> weights = parameters_[k];
    for (std::size_t row = 0; row < rows; ++row) {
      for (std::size_t i = 0; i < weights.size(); ++i) {
        const std::size_t feature = (i + static_cast<std::size_t>(k)) % features;
        outputs.data()[row] += weights[i] * inputs.data()[row * features + feature];
      }
    }
  }
  for (std::size_t row = 0; row < rows; ++row) outputs.data()[row] *= noise(row, pass);
  if (pass.training && pass.update_buffers && rows > 0) {
    for (std::size_t f = 0; f < features; ++f) {
      float total = 0.0F;
      for (std::size_t row = 0; row < rows; ++row) total += inputs.data()[row * features + f];
      float& running = buffers_.values()[f];
      running = 0.5F * running + 0.5F * total / static_cast<float>(rows);
    }
  }
  return outputs;
}

void ToyModel::backward(const train::Tensor& output_gradient, train::Pass& pass) {
  std::vector<int> order = arrival;
  if (order.empty()) {
    order.resize(options_.counts.size());
    std::iota(order.rbegin(), order.rend(), 0);
  }
  const std::size_t rows = inputs_.dim(0), features = options_.features;
  for (const int k : order) {
    if (!uses(k)) continue;
    if (before_gradient) before_gradient(k);
    const std::span<float> gradient = gradients_[k];
    for (std::size_t row = 0; row < rows; ++row) {
      const float scale = output_gradient.data()[row] * noise(row, pass);
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        const std::size_t feature = (i + static_cast<std::size_t>(k)) % features;
        gradient[i] += scale * inputs_.data()[row * features + feature];
      }
    }
    if (pass.gradient_ready) pass.gradient_ready(k);
  }
}

std::unique_ptr<train::Model> ToyModel::clone() const { return std::make_unique<ToyModel>(*this); }

train::Batch toy_batch(std::uint64_t step, std::size_t first, std::size_t count,
                       std::size_t features) {
  train::Batch batch;
  batch.inputs = train::Tensor({count, features});
  for (std::size_t row = 0; row < count; ++row) {
    const std::uint64_t key = mix(step * 100'000 + first + row);
    for (std::size_t f = 0; f < features; ++f) {
      batch.inputs.data()[row * features + f] = static_cast<float>(mix(key + f) % 5) - 2.0F;
    }
    batch.targets.push_back(static_cast<std::int32_t>(mix(key + features) % 7) - 3);
    batch.indices.push_back(first + row);
  }
  return batch;
}

double squared_loss(const train::Tensor& outputs, std::span<const std::int32_t> targets,
                    train::Tensor* gradient, float scale) {
  if (gradient != nullptr) *gradient = train::Tensor(outputs.shape());
  const auto rows = static_cast<float>(outputs.size());
  double total = 0.0;
  for (std::size_t row = 0; row < outputs.size(); ++row) {
    const float difference = outputs.data()[row] - static_cast<float>(targets[row]);
    total += static_cast<double>(difference) * difference / 2;
    if (gradient != nullptr) gradient->data()[row] = difference * (scale / rows);
  }
  return outputs.empty() ? 0.0 : total / static_cast<double>(rows);
}

std::vector<float> values_of(const train::Arena& arena) {
  return {arena.values().begin(), arena.values().end()};
}

}  // namespace unisono::test
