// The layers, by what makes them. Geometry is fixed here; the number of rows is each call's.
#pragma once

#include <cstdint>

#include "train/model/layer.h"

namespace unisono::train {

/// output = input * weight^T + bias; weight is [outputs, inputs].
std::shared_ptr<Layer> make_dense(std::size_t inputs, std::size_t outputs, bool bias = true);
std::shared_ptr<Layer> make_relu();
/// The tanh form of Hendrycks and Gimpel, 2016, as GPT-2 has it.
std::shared_ptr<Layer> make_gelu();
/// Square kernels, stride 1, zeros `padding` wide around; weight is [filters, channels, k, k].
std::shared_ptr<Layer> make_conv2d(Image input, std::size_t filters, std::size_t kernel,
                                   std::size_t padding);
/// Windows of `size` x `size` side by side; what does not fill a window is left out.
std::shared_ptr<Layer> make_max_pool(Image input, std::size_t size);
/// Over rows and planes of each channel; an input of features is an image of 1x1 planes.
std::shared_ptr<Layer> make_batch_norm(Image input, float momentum = 0.1F, float epsilon = 1e-5F);
std::shared_ptr<Layer> make_layer_norm(std::size_t features, float epsilon = 1e-5F);
/// [samples, context] token numbers to [samples * context, features]: token plus position.
std::shared_ptr<Layer> make_embedding(std::size_t vocabulary, std::size_t context,
                                      std::size_t features);
/// [samples * context, 3 * features] (queries, keys, values) to [samples * context, features]; no
/// position sees a later one.
std::shared_ptr<Layer> make_causal_attention(std::size_t context, std::size_t features,
                                             std::size_t heads);
/// `number` tells the dropouts of one model apart: each has random numbers of its own.
std::shared_ptr<Layer> make_dropout(float probability, std::uint64_t number);
/// output = input + inner(input): one unit for checkpointing, so no skip crosses a segment.
std::shared_ptr<Layer> make_residual(Layers inner);

}  // namespace unisono::train
