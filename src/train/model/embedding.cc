// Token and position embeddings: the first layer of a text model.
#include <stdexcept>

#include "train/model/layers.h"

namespace unisono::train {
namespace {

constexpr float kDeviation = 0.02F;  // GPT-2's

class Embedding final : public Layer {
 public:
  Embedding(std::size_t vocabulary, std::size_t context, std::size_t features)
      : vocabulary_(vocabulary), context_(context), features_(features) {}

  void declare(Declaration& declaration) override {
    tokens_ = declaration.parameter("tokens", {vocabulary_, features_});
    positions_ = declaration.parameter("positions", {context_, features_});
  }

  void initialise(Arena& parameters, Arena&, Random& random) const override {
    for (float& value : parameters[tokens_]) value = kDeviation * random.normal();
    for (float& value : parameters[positions_]) value = kDeviation * random.normal();
  }

  Tensor forward(const Tensor& input, Call& call, Saved*) const override {
    const auto tokens = call.use(tokens_), positions = call.use(positions_);
    Tensor output = Tensor::uninitialised({input.size(), features_});
    for (std::size_t row = 0; row < input.size(); ++row) {
      const float* token = tokens.data() + token_at(input, row) * features_;
      const float* position = positions.data() + row % context_ * features_;
      float* y = output.data() + row * features_;
      for (std::size_t i = 0; i < features_; ++i) y[i] = token[i] + position[i];
    }
    return output;
  }

  Tensor backward(const Tensor& input, const Tensor& output_gradient, Call& call,
                  Saved&) const override {
    float* tokens = call.gradients[tokens_].data();
    float* positions = call.gradients[positions_].data();
    for (std::size_t row = 0; row < input.size(); ++row) {
      const float* dy = output_gradient.data() + row * features_;
      float* token = tokens + token_at(input, row) * features_;
      float* position = positions + row % context_ * features_;
      for (std::size_t i = 0; i < features_; ++i) token[i] += dy[i];
      for (std::size_t i = 0; i < features_; ++i) position[i] += dy[i];
    }
    call.ready(positions_);
    call.ready(tokens_);
    // Token numbers have no derivative.
    return call.input_gradient ? Tensor(input.shape()) : Tensor();
  }

 private:
  std::size_t token_at(const Tensor& input, std::size_t row) const {
    const float value = input.data()[row];
    // Written so that a NaN fails too.
    if (value >= 0 && value < static_cast<float>(vocabulary_)) {
      const auto token = static_cast<std::size_t>(value);
      if (static_cast<float>(token) == value) return token;
    }
    throw std::invalid_argument("embedding: input " + std::to_string(value) + " is no token; " +
                                "tokens are whole numbers below " + std::to_string(vocabulary_));
  }

  std::size_t vocabulary_, context_, features_;
  int tokens_ = -1, positions_ = -1;
};

}  // namespace

std::shared_ptr<Layer> make_embedding(std::size_t vocabulary, std::size_t context,
                                      std::size_t features) {
  return std::make_shared<Embedding>(vocabulary, context, features);
}

}  // namespace unisono::train
