// Kernels of token and position embeddings. See item.h.
#pragma once

#include "train/cuda/kernels/item.h"

namespace unisono::train::kernels {

/// An item is an element of y, [rows, features].
struct Embed {
  std::uint64_t items, context, features, vocabulary;
  const std::uint32_t* tokens;
  const float *token_table, *position_table;
  float* y;
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const {
    const auto [row, at] = split(i, features);
    const std::uint64_t position = split(row, context).remainder;
    y[i] = token_table[tokens[row] * features + at] + position_table[position * features + at];
  }
  template <class Visit>
  void buffers(Visit visit) {
    visit(tokens, items / features);
    visit(token_table, vocabulary * features);
    visit(position_table, least(items, context * features));
    visit(y, items);
  }
};

/// Rows of one token, in their order: [begins[k], begins[k + 1]) of `rows` have tokens[k]. An item
/// is a feature of a token that occurs, so no two items add to the same place.
struct EmbedTokenGradient {
  std::uint64_t items, row_count, features, vocabulary;
  const std::uint32_t *tokens, *begins, *rows;
  const float* dy;
  float* gradient;  ///< of the token table
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const {
    const auto [k, at] = split(i, features);
    float* sum = gradient + tokens[k] * features + at;
    float total = *sum;
    for (std::uint32_t n = begins[k]; n < begins[k + 1]; ++n) total += dy[rows[n] * features + at];
    *sum = total;
  }
  template <class Visit>
  void buffers(Visit visit) {
    const std::uint64_t distinct = items / features;
    visit(tokens, distinct);
    visit(begins, distinct + 1);
    visit(rows, row_count);
    visit(dy, row_count * features);
    visit(gradient, vocabulary * features);
  }
};

/// An item is a feature of a position.
struct EmbedPositionGradient {
  std::uint64_t items, row_count, context, features;
  const float* dy;
  float* gradient;  ///< of the position table
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const {
    const auto [position, at] = split(i, features);
    float total = gradient[i];
    for (std::uint64_t row = position; row < row_count; row += context) {
      total += dy[row * features + at];
    }
    gradient[i] = total;
  }
  template <class Visit>
  void buffers(Visit visit) {
    visit(dy, row_count * features);
    visit(gradient, items);
  }
};

}  // namespace unisono::train::kernels
