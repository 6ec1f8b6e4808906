// Losses over outputs [rows, classes] and one target class per row.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "unisono/train/tensor.h"

namespace unisono::train {

/// Mean over rows of -log softmax(outputs)[target]. Where `gradient` is given it becomes the mean's
/// derivative by outputs, times `scale`. No rows: 0 and an empty gradient. A target that is no
/// class throws std::invalid_argument.
double cross_entropy(const Tensor& outputs, std::span<const std::int32_t> targets,
                     Tensor* gradient = nullptr, float scale = 1.0F);

/// Any loss of the form of cross_entropy(): what a training step is given.
using LossFunction = std::function<double(
    const Tensor& outputs, std::span<const std::int32_t> targets, Tensor* gradient, float scale)>;

/// Rows whose largest output is the target's.
std::size_t count_correct(const Tensor& outputs, std::span<const std::int32_t> targets);

}  // namespace unisono::train
