// Optimizers over flat ranges: the whole arena, or the part of it that a rank owns (ZeRO-1). One
// that is made in the scope of a GPU's DeviceMemory steps parameters that lie there, and its state
// lies there too.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "unisono/train/model.h"

namespace unisono::train {

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// Moves `parameters` against `gradients`; both have the count that the optimizer was made for.
  virtual void step(std::span<float> parameters, std::span<const float> gradients,
                    float learning_rate) = 0;
  /// Whether it steps parameters that lie there; see step() below.
  virtual bool fits(const Tensor& parameters) const { return parameters.on_host(); }
  /// State that a checkpoint keeps: flat arrays of one value per parameter, by name.
  struct State {
    std::string name;  ///< "momentum", "first_moment", "second_moment"
    std::span<float> values;
  };
  virtual std::vector<State> state() = 0;
  /// A state's values in the host's memory, and back: for those that lie elsewhere.
  virtual std::vector<float> read(const State& state) const {
    return {state.values.begin(), state.values.end()};
  }
  virtual void write(std::span<const float> host, const State& state) {
    std::copy(host.begin(), host.end(), state.values.begin());
  }
  /// Steps taken; AdamW's bias correction depends on it.
  virtual std::size_t steps() const = 0;
  virtual void set_steps(std::size_t steps) = 0;
  virtual std::string describe() const = 0;
};

/// Steps all parameters of a model. std::invalid_argument where the optimizer was made for tensors
/// that lie elsewhere.
void step(Optimizer& optimizer, Model& model, float learning_rate);

struct SgdOptions {
  float momentum = 0.9F, weight_decay = 0.0F;
  bool nesterov = false;
};
/// v = momentum * v + (g + weight_decay * p); p -= lr * v (PyTorch's form).
std::unique_ptr<Optimizer> make_sgd(std::size_t count, SgdOptions options = {});

struct AdamWOptions {
  float beta1 = 0.9F, beta2 = 0.999F, epsilon = 1e-8F, weight_decay = 0.01F;
};
/// Loshchilov and Hutter, 2019: decay apart from the gradient.
std::unique_ptr<Optimizer> make_adamw(std::size_t count, AdamWOptions options = {});

/// Makes one for `count` parameters: what a strategy is given, for it decides how many each rank
/// updates.
using OptimizerFactory = std::function<std::unique_ptr<Optimizer>(std::size_t count)>;

}  // namespace unisono::train
