// The host's arithmetic: one thread, sums in a fixed order, loops that vectorise. The same values
// give the same bits on every host with the same instruction set.
#pragma once

#include <memory>

#include "train/model/backend.h"

namespace unisono::train {

class HostBackend : public Backend {
 public:
  bool is_host() const override;
  void* take(std::size_t bytes) override;
  void give(void* block, std::size_t bytes) noexcept override;
  void read(const float* from, std::size_t count, float* host) override;
  void write(const float* host, std::size_t count, float* to) override;
  void copy(const float* from, std::size_t count, float* to) override;
  void fill(float* to, std::size_t count, float value) override;
  void add(const float* values, std::size_t count, float* sum) override;
  void add_products(const float* left, const float* right, std::size_t count, float* sum) override;
  void scale(const float* from, std::size_t count, float factor, float* to) override;
  void mix(float keep, float rest, const float* values, std::size_t count, float* to) override;
  void narrow(const float* from, std::size_t count, float factor, DataType type, void* to) override;
  void widen(const void* from, DataType type, std::size_t count, float* to) override;
  void relu(const float* x, std::size_t count, float* y) override;
  void relu_gradient(const float* x, const float* dy, std::size_t count, float* dx) override;
  void gelu(const float* x, std::size_t count, float* y) override;
  void gelu_gradient(const float* x, const float* dy, std::size_t count, float* dx) override;
  void dropout(const float* values, std::size_t count, const DropoutMask& mask, float* to) override;
  void multiply(const Product& product) override;
  void repeat_row(const float* row, std::size_t rows, std::size_t width, float* to) override;
  void add_column_sums(const float* values, std::size_t rows, std::size_t width,
                       float* sums) override;
  void convolve(const Convolution& shape, std::size_t samples, const float* x, const float* weight,
                const float* bias, float* y) override;
  void convolution_weight_gradient(const Convolution& shape, std::size_t samples, const float* x,
                                   const float* dy, float* weight_gradient,
                                   float* bias_gradient) override;
  void convolution_input_gradient(const Convolution& shape, std::size_t samples, const float* dy,
                                  const float* weight, float* dx) override;
  void max_pool(const Pooling& shape, std::size_t samples, const float* x, float* y) override;
  void max_pool_gradient(const Pooling& shape, std::size_t samples, const float* x, const float* dy,
                         float* dx) override;
  std::vector<double> channel_moments(const Image& image, std::size_t rows,
                                      const float* x) override;
  void normalise_channels(const Image& image, std::size_t rows, const float* x, const float* used,
                          const float* weight, const float* bias, float* y) override;
  void channel_gradient_sums(const Image& image, std::size_t rows, const float* x, const float* dy,
                             const float* used, float* sums) override;
  void normalise_channels_gradient(const Image& image, std::size_t rows, const float* x,
                                   const float* dy, const float* used, const float* sums,
                                   const float* weight, float* dx) override;
  void layer_norm(const LayerNormalisation& shape, const float* x, const float* weight,
                  const float* bias, float* y) override;
  void layer_norm_gradient(const LayerNormalisation& shape, const float* x, const float* dy,
                           const float* weight, float* weight_gradient, float* bias_gradient,
                           float* dx) override;
  void embed(const TokenRows& shape, std::span<const std::uint32_t> host_tokens,
             const float* token_table, const float* position_table, float* y) override;
  void embed_gradient(const TokenRows& shape, std::span<const std::uint32_t> host_tokens,
                      const float* dy, float* token_gradient, float* position_gradient) override;
  void attend(const Attention& shape, const float* x, float* weights, float* y) override;
  void attend_gradient(const Attention& shape, const float* x, const float* weights,
                       const float* dy, float* dx) override;
  double cross_entropy(std::span<const std::int32_t> targets, std::size_t classes,
                       const float* logits, double weight, float* gradient) override;
  std::size_t count_correct(std::span<const std::int32_t> targets, std::size_t classes,
                            const float* logits) override;
  void sgd(const SgdStep& step, const float* gradients, std::size_t count, float* velocity,
           float* parameters) override;
  void adamw(const AdamWStep& step, const float* gradients, std::size_t count, float* first,
             float* second, float* parameters) override;
};

/// The one that tensors of no DeviceMemory use. Never destroyed, for tensors with static lifetime
/// may outlive it.
const std::shared_ptr<Backend>& host_backend();

}  // namespace unisono::train
