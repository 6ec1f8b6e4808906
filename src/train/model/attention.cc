// Causal self-attention (Vaswani et al., 2017) between the dense layers that make queries, keys and
// values and the one that mixes the heads. One head of one sample at a time, all by small products.
#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "train/model/gemm.h"
#include "train/model/layers.h"
#include "train/model/vector_math.h"

namespace unisono::train {
namespace {

class CausalAttention final : public Layer {
 public:
  CausalAttention(std::size_t context, std::size_t features, std::size_t heads)
      : context_(context), features_(features), heads_(heads) {
    if (heads == 0 || features % heads != 0) {
      throw std::invalid_argument("attention: " + std::to_string(features) +
                                  " features do not divide into " + std::to_string(heads) +
                                  " heads");
    }
    width_ = features / heads;
    scale_ = 1 / std::sqrt(static_cast<float>(width_));
  }

  Tensor forward(const Tensor& input, Call&, Saved* saved) const override {
    const std::size_t heads = input.dim(0) / context_ * heads_;
    Tensor output = Tensor::uninitialised({input.dim(0), features_});
    const std::size_t square = context_ * context_;
    // Kept for backward, or one head's at a time.
    Tensor weights = Tensor::uninitialised({saved == nullptr ? 1 : heads, square});
    for (std::size_t head = 0; head < heads; ++head) {
      const Head in = head_of(input.data(), head);
      float* weight = weights.data() + (saved == nullptr ? 0 : head * square);
      multiply({context_,
                context_,
                width_,
                {in.query, stride()},
                {in.key, stride(), true},
                weight,
                context_});
      softmax(weight);
      multiply({context_,
                width_,
                context_,
                {weight, context_},
                {in.value, stride()},
                output.data() + output_offset(head),
                features_});
    }
    if (saved != nullptr) saved->tensors.push_back(std::move(weights));
    return output;
  }

  Tensor backward(const Tensor& input, const Tensor& output_gradient, Call&,
                  Saved& saved) const override {
    const std::size_t heads = input.dim(0) / context_ * heads_;
    Tensor gradient = Tensor::uninitialised(input.shape());
    Tensor scores = Tensor::uninitialised({context_, context_});
    for (std::size_t head = 0; head < heads; ++head) {
      const Head in = head_of(input.data(), head);
      const std::size_t at = input_offset(head);
      float* query = gradient.data() + at;
      float* key = query + features_;
      float* value = key + features_;
      const float* weight = saved.tensors[0].data() + head * context_ * context_;
      const float* dy = output_gradient.data() + output_offset(head);
      multiply(
          {context_, width_, context_, {weight, context_, true}, {dy, features_}, value, stride()});
      multiply({context_,
                context_,
                width_,
                {dy, features_},
                {in.value, stride(), true},
                scores.data(),
                context_});
      softmax_gradient(weight, scores.data());
      multiply({context_,
                width_,
                context_,
                {scores.data(), context_},
                {in.key, stride()},
                query,
                stride()});
      multiply({context_,
                width_,
                context_,
                {scores.data(), context_, true},
                {in.query, stride()},
                key,
                stride()});
    }
    return gradient;
  }

 private:
  struct Head {
    const float *query, *key, *value;  // rows `stride()` apart
  };
  std::size_t stride() const { return 3 * features_; }
  /// `head` counts over all samples: all heads of the first, then of the second.
  std::size_t input_offset(std::size_t head) const {
    return head / heads_ * context_ * stride() + head % heads_ * width_;
  }
  std::size_t output_offset(std::size_t head) const {
    return head / heads_ * context_ * features_ + head % heads_ * width_;
  }
  Head head_of(const float* input, std::size_t head) const {
    const float* query = input + input_offset(head);
    return {query, query + features_, query + 2 * features_};
  }

  /// Scores to weights, in place: row t over positions up to t, later ones 0.
  void softmax(float* scores) const {
    for (std::size_t t = 0; t < context_; ++t) {
      float* row = scores + t * context_;
      const float largest = *std::max_element(row, row + t + 1);
      for (std::size_t s = 0; s <= t; ++s) row[s] = vector_exp((row[s] - largest) * scale_);
      const auto inverse = static_cast<float>(1 / lane_sum(row, t + 1));
      for (std::size_t s = 0; s <= t; ++s) row[s] *= inverse;
      std::fill(row + t + 1, row + context_, 0.0F);
    }
  }

  /// Gradients of weights to gradients of unscaled scores, in place.
  void softmax_gradient(const float* weights, float* gradients) const {
    for (std::size_t t = 0; t < context_; ++t) {
      const float* weight = weights + t * context_;
      float* gradient = gradients + t * context_;
      const auto level = static_cast<float>(lane_centred_dot(gradient, weight, t + 1, 0));
      for (std::size_t s = 0; s <= t; ++s) {
        gradient[s] = weight[s] * (gradient[s] - level) * scale_;
      }
      std::fill(gradient + t + 1, gradient + context_, 0.0F);
    }
  }

  std::size_t context_, features_, heads_, width_;
  float scale_;
};

}  // namespace

std::shared_ptr<Layer> make_causal_attention(std::size_t context, std::size_t features,
                                             std::size_t heads) {
  return std::make_shared<CausalAttention>(context, features, heads);
}

}  // namespace unisono::train
