// Causal self-attention (Vaswani et al., 2017) between the dense layers that make queries, keys and
// values and the one that mixes the heads.
#include <stdexcept>

#include "train/model/layers.h"

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
  }

  Tensor forward(const Tensor& input, Call& call, Saved* saved) const override {
    const Attention shape = shape_of(input);
    Tensor output = Tensor::uninitialised({input.dim(0), features_});
    Tensor weights = Tensor::uninitialised({saved == nullptr ? 0 : shape.weights()});
    call.backend.attend(shape, input.data(), weights.data(), output.data());
    if (saved != nullptr) saved->tensors.push_back(std::move(weights));
    return output;
  }

  Tensor backward(const Tensor& input, const Tensor& output_gradient, Call& call,
                  Saved& saved) const override {
    Tensor gradient = Tensor::uninitialised(input.shape());
    call.backend.attend_gradient(shape_of(input), input.data(), saved.tensors[0].data(),
                                 output_gradient.data(), gradient.data());
    return gradient;
  }

 private:
  Attention shape_of(const Tensor& input) const {
    return {input.dim(0) / context_, context_, features_, heads_};
  }

  std::size_t context_, features_, heads_;
};

}  // namespace

std::shared_ptr<Layer> make_causal_attention(std::size_t context, std::size_t features,
                                             std::size_t heads) {
  return std::make_shared<CausalAttention>(context, features, heads);
}

}  // namespace unisono::train
