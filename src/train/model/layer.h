// What a layer is: an immutable description that reads and writes the arenas it is handed.
//
// A layer keeps nothing between calls, and says what is to be computed: the backend computes it.
// What its backward needs is its input, which the caller keeps (or computes again), and a Saved for
// the little that is not in the input. So replicas share layers, and checkpointing is a matter of
// what the caller drops. Activations are [rows, features].
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "train/model/backend.h"
#include "train/model/random.h"
#include "unisono/train/model.h"

namespace unisono::train {

/// What a forward leaves for its backward.
struct Saved {
  std::vector<Tensor> tensors;
  std::vector<Saved> parts;  ///< of inner layers
};

/// What forward and backward of one pass share.
struct Call {
  Backend& backend;  ///< where the arenas and all tensors of the pass lie
  const Arena& parameters;
  Arena& gradients;
  Arena& buffers;
  Pass& pass;
  bool sync_batch_norm = false;  ///< statistics over pass.statistics
  bool input_gradient = true;    ///< off for a model's first layer: nobody asks for it

  std::span<const float> use(int parameter);
  /// Backward is done with this gradient.
  void ready(int parameter);
};

/// Where a layer names its parameters and buffers, once.
class Declaration {
 public:
  Declaration(Arena& parameters, Arena& buffers, std::string prefix)
      : parameters_(parameters), buffers_(buffers), prefix_(std::move(prefix)) {}

  int parameter(const std::string& name, Shape shape) {
    return parameters_.add(prefix_ + name, std::move(shape));
  }
  int buffer(const std::string& name, Shape shape) {
    return buffers_.add(prefix_ + name, std::move(shape));
  }
  /// For inner layer `index`: "layers.1." becomes "layers.1.0.".
  Declaration inner(std::size_t index) const {
    return {parameters_, buffers_, prefix_ + std::to_string(index) + "."};
  }

 private:
  Arena& parameters_;
  Arena& buffers_;
  std::string prefix_;
};

class Layer {
 public:
  virtual ~Layer() = default;

  /// Once, before any other call.
  virtual void declare(Declaration&) {}
  /// The values before training.
  virtual void initialise(Arena& /*parameters*/, Arena& /*buffers*/, Random&) const {}
  /// `saved` null: no backward follows.
  virtual Tensor forward(const Tensor& input, Call& call, Saved* saved) const = 0;
  /// The gradient of `input`, or an empty tensor where call.input_gradient is off. `saved` is what
  /// forward() of the same input left.
  virtual Tensor backward(const Tensor& input, const Tensor& output_gradient, Call& call,
                          Saved& saved) const = 0;
  /// In it, itself included.
  virtual std::size_t batch_norms() const { return 0; }
};

using Layers = std::vector<std::shared_ptr<Layer>>;

}  // namespace unisono::train
