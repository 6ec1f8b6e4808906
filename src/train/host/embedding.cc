// Rows of a token table plus rows of a position table.
#include "train/host/host_backend.h"

namespace unisono::train {

void HostBackend::embed(const TokenRows& shape, std::span<const std::uint32_t> host_tokens,
                        const float* token_table, const float* position_table, float* y) {
  const std::size_t features = shape.features;
  for (std::size_t row = 0; row < shape.rows; ++row, y += features) {
    const float* token = token_table + host_tokens[row] * features;
    const float* position = position_table + row % shape.context * features;
    for (std::size_t i = 0; i < features; ++i) y[i] = token[i] + position[i];
  }
}

void HostBackend::embed_gradient(const TokenRows& shape, std::span<const std::uint32_t> host_tokens,
                                 const float* dy, float* token_gradient, float* position_gradient) {
  const std::size_t features = shape.features;
  for (std::size_t row = 0; row < shape.rows; ++row, dy += features) {
    float* token = token_gradient + host_tokens[row] * features;
    float* position = position_gradient + row % shape.context * features;
    for (std::size_t i = 0; i < features; ++i) token[i] += dy[i];
    for (std::size_t i = 0; i < features; ++i) position[i] += dy[i];
  }
}

}  // namespace unisono::train
