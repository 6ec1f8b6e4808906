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
    Tensor output = Tensor::uninitialised({input.size(), features_});
    call.backend.embed(shape_of(input), tokens_of(input, call.backend), call.use(tokens_).data(),
                       call.use(positions_).data(), output.data());
    return output;
  }

  Tensor backward(const Tensor& input, const Tensor& output_gradient, Call& call,
                  Saved&) const override {
    call.backend.embed_gradient(shape_of(input), tokens_of(input, call.backend),
                                output_gradient.data(), call.gradients[tokens_].data(),
                                call.gradients[positions_].data());
    call.ready(positions_);
    call.ready(tokens_);
    // Token numbers have no derivative.
    return call.input_gradient ? Tensor(input.shape()) : Tensor();
  }

 private:
  TokenRows shape_of(const Tensor& input) const {
    return {input.size(), context_, features_, vocabulary_};
  }

  std::vector<std::uint32_t> tokens_of(const Tensor& input, Backend& backend) const {
    std::vector<std::uint32_t> tokens;
    tokens.reserve(input.size());
    for (const float value : host_copy(backend, input.values())) tokens.push_back(token_of(value));
    return tokens;
  }

  std::uint32_t token_of(float value) const {
    // Written so that a NaN fails too.
    if (value >= 0 && value < static_cast<float>(vocabulary_)) {
      const auto token = static_cast<std::uint32_t>(value);
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
