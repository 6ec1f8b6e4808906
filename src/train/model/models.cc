// The ready models, layer by layer.
#include "unisono/train/models.h"

#include <stdexcept>

#include "train/model/layers.h"
#include "train/model/sequential.h"

namespace unisono::train {
namespace {

std::string joined(const std::vector<std::size_t>& numbers) {
  std::string text;
  for (const std::size_t number : numbers) {
    text += (text.empty() ? "" : "-") + std::to_string(number);
  }
  return text;
}

void require_positive(const char* model, const std::vector<std::size_t>& numbers) {
  for (const std::size_t number : numbers) {
    if (number == 0) throw std::invalid_argument(std::string(model) + ": a width or count of 0");
  }
}

}  // namespace

std::unique_ptr<Model> make_mlp(const MlpOptions& options) {
  const auto& widths = options.widths;
  if (widths.size() < 2) throw std::invalid_argument("mlp: inputs and classes are needed");
  require_positive("mlp", widths);
  Layers layers;
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    if (i > 0) layers.push_back(make_relu());
    if (i > 0 && options.dropout != 0) layers.push_back(make_dropout(options.dropout, i));
    layers.push_back(make_dense(widths[i], widths[i + 1]));
  }
  return std::make_unique<Sequential>("mlp " + joined(widths), widths[0], std::move(layers),
                                      options.seed);
}

std::unique_ptr<Model> make_cnn(const CnnOptions& options) {
  require_positive("cnn", {options.channels, options.size, options.classes});
  require_positive("cnn", options.filters);
  const Image input{options.channels, options.size, options.size};
  Image image = input;
  Layers layers;
  for (const std::size_t filters : options.filters) {
    layers.push_back(make_conv2d(image, filters, 3, 1));
    image.channels = filters;
    layers.push_back(make_batch_norm(image));
    layers.push_back(make_relu());
    layers.push_back(make_max_pool(image, 2));
    image = {filters, image.height / 2, image.width / 2};
  }
  layers.push_back(make_dense(image.size(), options.classes));
  const std::string size = std::to_string(options.size);
  return std::make_unique<Sequential>(
      "cnn " + size + "x" + size + "x" + std::to_string(options.channels) + " " +
          joined(options.filters) + " " + std::to_string(options.classes),
      input.size(), std::move(layers), options.seed);
}

std::unique_ptr<Model> make_gpt(const GptOptions& options) {
  const auto [vocabulary, context, blocks, width, heads, dropout, seed] = options;
  require_positive("gpt", {vocabulary, context, width, heads});
  if (vocabulary > 1U << 24) {
    throw std::invalid_argument("gpt: token numbers are floats, exact up to 2^24; the vocabulary " +
                                std::to_string(vocabulary) + " is larger");
  }
  const auto branch = [dropout = dropout](Layers inner, std::uint64_t number) {
    if (dropout != 0) inner.push_back(make_dropout(dropout, number));
    return make_residual(std::move(inner));
  };
  Layers layers;
  layers.push_back(make_embedding(vocabulary, context, width));
  for (std::size_t block = 0; block < blocks; ++block) {
    layers.push_back(
        branch({make_layer_norm(width), make_dense(width, 3 * width),
                make_causal_attention(context, width, heads), make_dense(width, width)},
               2 * block));
    layers.push_back(branch({make_layer_norm(width), make_dense(width, 4 * width), make_gelu(),
                             make_dense(4 * width, width)},
                            2 * block + 1));
  }
  layers.push_back(make_layer_norm(width));
  layers.push_back(make_dense(width, vocabulary, false));
  return std::make_unique<Sequential>(
      "gpt " + std::to_string(blocks) + " layers, " + std::to_string(width) + " wide, " +
          std::to_string(heads) + " heads, context " + std::to_string(context) + ", vocabulary " +
          std::to_string(vocabulary),
      context, std::move(layers), seed);
}

}  // namespace unisono::train
