// Where tensors' elements lie, and the arithmetic on what lies there: the host or one GPU.
//
// Layers, losses, optimizers and gradient buckets say by these calls what is to be computed; a
// backend says how. All pointers are into the backend's memory but for those named `host`, results
// that are returned, and targets. A GPU's backend enqueues its work on a stream of its own and
// returns, so what one call writes the next one reads; read() and calls that return a value wait
// for it. Outputs do not overlap inputs unless a call says so. Counts are elements.
//
// Errors: std::bad_alloc or OutOfDeviceMemory for memory; std::runtime_error, naming the device,
// for a GPU that fails, perhaps at a later call.
//
// Threads: one thread at a time; take() and give(): any thread.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "train/model/product.h"
#include "unisono/options.h"
#include "unisono/train/model.h"
#include "unisono/types.h"

namespace unisono::train {

/// A picture of `channels` planes, row by row: one row of features of an activation.
struct Image {
  std::size_t channels, height, width;
  std::size_t plane() const { return height * width; }
  std::size_t size() const { return channels * plane(); }
};

/// Square kernels, stride 1, zeros `padding` wide around.
struct Convolution {
  Image input, output;  ///< the output's channels are the filters
  std::size_t kernel, padding;
  /// Rows of the matrix of windows: weights of one filter.
  std::size_t taps() const { return input.channels * kernel * kernel; }
};

/// Windows of `size` x `size` side by side; what does not fill a window is left out.
struct Pooling {
  Image input, output;
  std::size_t size;
};

/// Inputs are [samples * context, 3 * features]: queries, keys and values, each by heads.
struct Attention {
  std::size_t samples, context, features, heads;
  std::size_t width() const { return features / heads; }
  /// What scores are multiplied by.
  float scale() const { return 1 / std::sqrt(static_cast<float>(width())); }
  /// Of the matrices of weights, [samples * heads, context, context].
  std::size_t weights() const { return samples * heads * context * context; }
};

struct LayerNormalisation {
  std::size_t rows, features;
  float epsilon;
};

/// Row r is the token at position r modulo `context`.
struct TokenRows {
  std::size_t rows, context, features, vocabulary;
};

/// Which elements are dropped: element i is where unit_float(mixed(key + i)) < probability; the
/// others are multiplied by 1 / (1 - probability).
struct DropoutMask {
  std::uint64_t key;
  float probability;
};

/// v = momentum * v + (g + decay * p); p -= rate * v. Nesterov: p -= rate * (slope + momentum * v).
/// Momentum 0 has no v.
struct SgdStep {
  float rate, momentum, decay;
  bool nesterov;
};

/// m = beta1 * m + rest1 * g; v = beta2 * v + rest2 * g * g;
/// p = p * kept - rate * m / (sqrt(v) * root + epsilon).
struct AdamWStep {
  float beta1, rest1, beta2, rest2, epsilon, kept, rate, root;
};

class Backend {
 public:
  virtual ~Backend() = default;
  /// The host may touch the memory.
  virtual bool is_host() const = 0;
  /// "device 1"; empty: the host's.
  virtual std::string device_name() const { return {}; }

  // ---- Memory ------------------------------------------------------------------------------
  /// 64-byte aligned at least.
  virtual void* take(std::size_t bytes) = 0;
  /// Work that is enqueued may still use the block.
  virtual void give(void* block, std::size_t bytes) noexcept = 0;
  /// A GPU copies from the memory by itself.
  virtual bool is_page_locked() const { return false; }
  virtual void read(const float* from, std::size_t count, float* host) = 0;
  /// `host` is free again when it returns.
  virtual void write(const float* host, std::size_t count, float* to) = 0;
  /// The same from page-locked memory.
  virtual void write_page_locked(const float* host, std::size_t count, float* to) {
    write(host, count, to);
  }
  virtual void copy(const float* from, std::size_t count, float* to) = 0;
  virtual void fill(float* to, std::size_t count, float value) = 0;

  /// Until all that was enqueued is done.
  virtual void wait() {}

  // ---- Streams: for collectives on this memory -----------------------------------------------
  /// CallOptions::stream of a call that comes after all that was enqueued and before all that will
  /// be. None on the host.
  virtual std::optional<CudaStream> stream() const { return {}; }
  /// A stream beside it, for communication that overlaps the computation.
  virtual std::optional<CudaStream> side_stream() { return {}; }
  /// What is put into the side stream from now on comes after what is in the main one now.
  virtual void side_follows_main() {}
  /// The other way round.
  virtual void main_follows_side() {}

  // ---- Element by element --------------------------------------------------------------------
  /// sum += values.
  virtual void add(const float* values, std::size_t count, float* sum) = 0;
  /// sum += left * right.
  virtual void add_products(const float* left, const float* right, std::size_t count,
                            float* sum) = 0;
  /// to = from * factor; `to` may be `from`.
  virtual void scale(const float* from, std::size_t count, float factor, float* to) = 0;
  /// to = keep * to + rest * values.
  virtual void mix(float keep, float rest, const float* values, std::size_t count, float* to) = 0;
  /// to = from * factor, rounded to kFloat16 or kBfloat16.
  virtual void narrow(const float* from, std::size_t count, float factor, DataType type,
                      void* to) = 0;
  virtual void widen(const void* from, DataType type, std::size_t count, float* to) = 0;

  virtual void relu(const float* x, std::size_t count, float* y) = 0;
  virtual void relu_gradient(const float* x, const float* dy, std::size_t count, float* dx) = 0;
  /// The tanh form.
  virtual void gelu(const float* x, std::size_t count, float* y) = 0;
  virtual void gelu_gradient(const float* x, const float* dy, std::size_t count, float* dx) = 0;
  virtual void dropout(const float* values, std::size_t count, const DropoutMask& mask,
                       float* to) = 0;

  // ---- Matrices ------------------------------------------------------------------------------
  virtual void multiply(const Product& product) = 0;
  /// Every row of to, [rows, width], becomes `row`.
  virtual void repeat_row(const float* row, std::size_t rows, std::size_t width, float* to) = 0;
  /// sums[c] += the sum of column c of values, [rows, width].
  virtual void add_column_sums(const float* values, std::size_t rows, std::size_t width,
                               float* sums) = 0;

  // ---- Layers --------------------------------------------------------------------------------
  /// `weight` is [filters, taps], y [samples, output.size()], written with the bias.
  virtual void convolve(const Convolution& shape, std::size_t samples, const float* x,
                        const float* weight, const float* bias, float* y) = 0;
  /// Adds to both gradients.
  virtual void convolution_weight_gradient(const Convolution& shape, std::size_t samples,
                                           const float* x, const float* dy, float* weight_gradient,
                                           float* bias_gradient) = 0;
  virtual void convolution_input_gradient(const Convolution& shape, std::size_t samples,
                                          const float* dy, const float* weight, float* dx) = 0;

  virtual void max_pool(const Pooling& shape, std::size_t samples, const float* x, float* y) = 0;
  /// The gradient goes to the first maximum of each window; all else of dx becomes 0.
  virtual void max_pool_gradient(const Pooling& shape, std::size_t samples, const float* x,
                                 const float* dy, float* dx) = 0;

  /// Per channel over rows and planes: means, then biased variances; zeros without rows.
  virtual std::vector<double> channel_moments(const Image& image, std::size_t rows,
                                              const float* x) = 0;
  /// y = (x - mean) * (weight * inverse) + bias, all by channel; `used` is means, inverse
  /// deviations and the count they were measured over, 2 * channels + 1 numbers.
  virtual void normalise_channels(const Image& image, std::size_t rows, const float* x,
                                  const float* used, const float* weight, const float* bias,
                                  float* y) = 0;
  /// By channel the sums of dy, then of dy * (x - mean).
  virtual void channel_gradient_sums(const Image& image, std::size_t rows, const float* x,
                                     const float* dy, const float* used, float* sums) = 0;
  /// dx = (dy - sums[c] / n - (x - mean) * (sums[C + c] / n * inverse^2)) * weight * inverse, with
  /// n the count in `used`.
  virtual void normalise_channels_gradient(const Image& image, std::size_t rows, const float* x,
                                           const float* dy, const float* used, const float* sums,
                                           const float* weight, float* dx) = 0;

  /// Each row to mean 0 and (biased) variance 1, times weight, plus bias.
  virtual void layer_norm(const LayerNormalisation& shape, const float* x, const float* weight,
                          const float* bias, float* y) = 0;
  /// Adds to the gradients of weight and bias, writes dx.
  virtual void layer_norm_gradient(const LayerNormalisation& shape, const float* x, const float* dy,
                                   const float* weight, float* weight_gradient,
                                   float* bias_gradient, float* dx) = 0;

  /// y = token_table[tokens[r]] + position_table[r modulo context]. `host_tokens` are whole numbers
  /// below the vocabulary.
  virtual void embed(const TokenRows& shape, std::span<const std::uint32_t> host_tokens,
                     const float* token_table, const float* position_table, float* y) = 0;
  /// Adds to both gradients.
  virtual void embed_gradient(const TokenRows& shape, std::span<const std::uint32_t> host_tokens,
                              const float* dy, float* token_gradient, float* position_gradient) = 0;

  /// weights = causal softmax(queries * keys^T / sqrt(width)), y = weights * values, [samples *
  /// context, features]. `weights` may be null.
  virtual void attend(const Attention& shape, const float* x, float* weights, float* y) = 0;
  virtual void attend_gradient(const Attention& shape, const float* x, const float* weights,
                               const float* dy, float* dx) = 0;

  // ---- Losses: logits [rows, classes], a target class for each row ---------------------------
  /// The sum over rows of -log softmax(logits)[target]; `gradient`, unless null, becomes
  /// (softmax - one-hot) * weight.
  virtual double cross_entropy(std::span<const std::int32_t> targets, std::size_t classes,
                               const float* logits, double weight, float* gradient) = 0;
  /// Rows whose first largest logit is the target's.
  virtual std::size_t count_correct(std::span<const std::int32_t> targets, std::size_t classes,
                                    const float* logits) = 0;

  // ---- Optimizers ----------------------------------------------------------------------------
  /// `velocity` is null without momentum.
  virtual void sgd(const SgdStep& step, const float* gradients, std::size_t count, float* velocity,
                   float* parameters) = 0;
  virtual void adamw(const AdamWStep& step, const float* gradients, std::size_t count, float* first,
                     float* second, float* parameters) = 0;
};

/// The calling thread's: of its innermost DeviceMemory::Scope, or the host's.
Backend& current_backend();
/// Where the elements lie. An empty tensor's is the host's.
Backend& backend_of(const Tensor& tensor);
Backend& backend_of(const Arena& arena);

/// Options of a call on this backend's memory, in its stream.
CallOptions in_stream(const Backend& backend, CallOptions options = {});

std::vector<float> host_copy(Backend& backend, std::span<const float> values);
/// One dimension, where the calling thread's tensors lie.
Tensor tensor_of(std::span<const float> host);
/// Of as many elements, wherever they lie.
void copy_elements(const Tensor& from, Tensor* to);
/// Of the same shape and on the same device.
Tensor uninitialised_beside(const Tensor& tensor);

}  // namespace unisono::train
