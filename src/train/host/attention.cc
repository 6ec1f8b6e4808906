// Causal attention, one head of one sample at a time, all by small products.
#include <algorithm>
#include <cmath>

#include "train/host/gemm.h"
#include "train/host/host_backend.h"
#include "train/host/lane_sums.h"
#include "train/model/vector_math.h"

namespace unisono::train {
namespace {

// One head of one sample; `head` counts over all samples: all heads of the first, then of the
// second. Rows of queries, keys and values are `stride` apart.
struct Head {
  Head(const Attention& shape, std::size_t head)
      : stride(3 * shape.features),
        input(head / shape.heads * shape.context * stride + head % shape.heads * shape.width()),
        output(head / shape.heads * shape.context * shape.features +
               head % shape.heads * shape.width()) {}

  std::size_t stride;
  std::size_t input, output;  // offsets of its first element
};

/// Scores to weights, in place: row t over positions up to t, later ones 0.
void softmax(const Attention& shape, float* scores) {
  const std::size_t context = shape.context;
  const float scale = shape.scale();
  for (std::size_t t = 0; t < context; ++t) {
    float* row = scores + t * context;
    const float largest = *std::max_element(row, row + t + 1);
    for (std::size_t s = 0; s <= t; ++s) row[s] = vector_exp((row[s] - largest) * scale);
    const auto inverse = static_cast<float>(1 / lane_sum(row, t + 1));
    for (std::size_t s = 0; s <= t; ++s) row[s] *= inverse;
    std::fill(row + t + 1, row + context, 0.0F);
  }
}

/// Gradients of weights to gradients of unscaled scores, in place.
void softmax_gradient(const Attention& shape, const float* weights, float* gradients) {
  const std::size_t context = shape.context;
  const float scale = shape.scale();
  for (std::size_t t = 0; t < context; ++t) {
    const float* weight = weights + t * context;
    float* gradient = gradients + t * context;
    const auto level = static_cast<float>(lane_centred_dot(gradient, weight, t + 1, 0));
    for (std::size_t s = 0; s <= t; ++s) gradient[s] = weight[s] * (gradient[s] - level) * scale;
    std::fill(gradient + t + 1, gradient + context, 0.0F);
  }
}

}  // namespace

void HostBackend::attend(const Attention& shape, const float* x, float* weights, float* y) {
  const std::size_t context = shape.context, width = shape.width();
  // Kept for backward, or one head's at a time.
  Tensor one = Tensor::uninitialised({weights == nullptr ? context * context : 0});
  for (std::size_t head = 0; head < shape.samples * shape.heads; ++head) {
    const Head at(shape, head);
    const float* query = x + at.input;
    const float *key = query + shape.features, *value = key + shape.features;
    float* weight = weights == nullptr ? one.data() : weights + head * context * context;
    train::multiply(
        {context, context, width, {query, at.stride}, {key, at.stride, true}, weight, context});
    softmax(shape, weight);
    train::multiply({context,
                     width,
                     context,
                     {weight, context},
                     {value, at.stride},
                     y + at.output,
                     shape.features});
  }
}

void HostBackend::attend_gradient(const Attention& shape, const float* x, const float* weights,
                                  const float* dy, float* dx) {
  const std::size_t context = shape.context, width = shape.width(), features = shape.features;
  Tensor room = Tensor::uninitialised({context, context});
  float* scores = room.data();
  for (std::size_t head = 0; head < shape.samples * shape.heads; ++head) {
    const Head at(shape, head);
    const std::size_t stride = at.stride;
    const float* query = x + at.input;
    const float *key = query + features, *value = key + features;
    float* query_gradient = dx + at.input;
    float* key_gradient = query_gradient + features;
    float* value_gradient = key_gradient + features;
    const float* weight = weights + head * context * context;
    const float* slope = dy + at.output;
    train::multiply({context,
                     width,
                     context,
                     {weight, context, true},
                     {slope, features},
                     value_gradient,
                     stride});
    train::multiply(
        {context, context, width, {slope, features}, {value, stride, true}, scores, context});
    softmax_gradient(shape, weight, scores);
    train::multiply(
        {context, width, context, {scores, context}, {key, stride}, query_gradient, stride});
    train::multiply(
        {context, width, context, {scores, context, true}, {query, stride}, key_gradient, stride});
  }
}

}  // namespace unisono::train
