// The ready models: a perceptron, a convolutional network and a small character transformer.
//
// Inputs are [batch, values of a sample], or the same values in more dimensions; an empty batch is
// allowed, another count of values throws std::invalid_argument. The same options give the same
// parameters on every machine. Only a forward with Pass::training keeps what backward() needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "unisono/train/model.h"

namespace unisono::train {

struct MlpOptions {
  std::vector<std::size_t> widths = {784, 256, 10};  ///< inputs, hidden layers, classes
  float dropout = 0;                                 ///< after each hidden layer
  std::uint64_t seed = 1;
};
/// Dense layers with ReLU between them. "mlp 784-256-10".
std::unique_ptr<Model> make_mlp(const MlpOptions& options = {});

struct CnnOptions {
  std::size_t channels = 1, size = 28;          ///< square images
  std::vector<std::size_t> filters = {16, 32};  ///< of each 3x3 convolution; each halves the image
  std::size_t classes = 10;
  std::uint64_t seed = 1;
};
/// Convolution, batch norm, ReLU and 2x2 max pooling, as often as there are filters, then a dense
/// layer. "cnn 28x28x1 16-32 10".
std::unique_ptr<Model> make_cnn(const CnnOptions& options = {});

struct GptOptions {
  std::size_t vocabulary = 256, context = 64, layers = 2, width = 64, heads = 4;
  float dropout = 0;  ///< at the end of each residual branch
  std::uint64_t seed = 1;
};
/// A decoder in GPT-2's form: [batch, context] token numbers, as floats, to
/// [batch * context, vocabulary].
std::unique_ptr<Model> make_gpt(const GptOptions& options);

/// The model's batch norms take the statistics of all ranks from now on, wherever a pass has a
/// StatisticsExchange; without this they ignore it. Returns how many there are. A model that was
/// not made here is refused with std::invalid_argument.
std::size_t convert_sync_batch_norm(Model& model);

}  // namespace unisono::train
