// The Backend of one GPU. Every call enqueues on the main stream; its files are by what is
// computed. Threads as Backend says.
#pragma once

#include "train/cuda/block_cache.h"
#include "train/cuda/gpu.h"
#include "train/cuda/launcher.h"
#include "train/cuda/products.h"
#include "train/cuda/staging.h"
#include "train/cuda/streams.h"
#include "train/model/backend.h"
#include "train/model/device_memory.h"

namespace unisono::train {

class GpuBackend final : public Backend {
 public:
  explicit GpuBackend(int device);
  ~GpuBackend() override;
  bool is_host() const override { return false; }
  std::string device_name() const override { return gpu_->name(); }

  // gpu_backend.cc
  void* take(std::size_t bytes) override { return blocks_.take(bytes); }
  void give(void* block, std::size_t bytes) noexcept override { blocks_.give(block, bytes); }
  void read(const float* from, std::size_t count, float* host) override;
  void write(const float* host, std::size_t count, float* to) override;
  void write_page_locked(const float* host, std::size_t count, float* to) override;
  void copy(const float* from, std::size_t count, float* to) override;
  void fill(float* to, std::size_t count, float value) override;

  std::optional<CudaStream> stream() const override { return streams_.main(); }
  std::optional<CudaStream> side_stream() override { return streams_.side(); }
  void side_follows_main() override { streams_.side_follows_main(); }
  void main_follows_side() override { streams_.main_follows_side(); }
  void wait() override { streams_.wait_for_all(); }

  // element_calls.cc
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
  void sgd(const SgdStep& step, const float* gradients, std::size_t count, float* velocity,
           float* parameters) override;
  void adamw(const AdamWStep& step, const float* gradients, std::size_t count, float* first,
             float* second, float* parameters) override;

  // matrix_calls.cc
  void multiply(const Product& product) override;
  void repeat_row(const float* row, std::size_t rows, std::size_t width, float* to) override;
  void add_column_sums(const float* values, std::size_t rows, std::size_t width,
                       float* sums) override;
  void attend(const Attention& shape, const float* x, float* weights, float* y) override;
  void attend_gradient(const Attention& shape, const float* x, const float* weights,
                       const float* dy, float* dx) override;

  // image_calls.cc
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

  // norm_calls.cc
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

  // row_calls.cc
  void embed(const TokenRows& shape, std::span<const std::uint32_t> host_tokens,
             const float* token_table, const float* position_table, float* y) override;
  void embed_gradient(const TokenRows& shape, std::span<const std::uint32_t> host_tokens,
                      const float* dy, float* token_gradient, float* position_gradient) override;
  double cross_entropy(std::span<const std::int32_t> targets, std::size_t classes,
                       const float* logits, double weight, float* gradient) override;
  std::size_t count_correct(std::span<const std::int32_t> targets, std::size_t classes,
                            const float* logits) override;

 private:
  /// Device memory for the length of one call, typed.
  template <typename T>
  class Temporary {
   public:
    Temporary(BlockCache& blocks, std::size_t count)
        : charge_(count * sizeof(T)), scratch_(blocks, count * sizeof(T)) {}
    T* get() const { return static_cast<T*>(scratch_.get()); }

   private:
    MemoryCharge charge_;
    Scratch scratch_;
  };

  template <class Kernel>
  void launch(const Kernel& kernel) {
    launcher_.launch(streams_.main(), kernel);
  }
  /// Enqueues the copy; `host` is free when it returns.
  template <typename T>
  void upload(std::span<const T> host, T* to) {
    staging_.write(streams_.main(), host.data(), host.size_bytes(), to);
  }
  /// Between any two memories, in the main stream.
  void enqueue_copy(const void* from, std::size_t bytes, void* to);
  /// Waits for what is enqueued in the main stream.
  void download(const void* from, std::size_t bytes, void* host);

  /// sums[c] += the sum of x over rows and planes of channel c.
  void add_channel_sums(const Image& image, std::size_t rows, const float* x, float* sums);
  /// How `rows` images are shared out among partial sums, of which there are `parts` a channel.
  static kernels::ChannelWalk walk_of(const Image& image, std::size_t rows, std::size_t* parts);
  /// Of `values`, which the device holds.
  double total(const double* values, std::size_t count);

  const std::shared_ptr<const Gpu> gpu_;
  const Launcher launcher_;
  BlockCache blocks_;
  Streams streams_;
  Staging staging_;
  Products products_;
};

}  // namespace unisono::train
