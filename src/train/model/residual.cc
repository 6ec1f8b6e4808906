// A skip connection around a few layers. To its caller it is one layer; the inputs of the inner
// ones are in its Saved.
#include <stdexcept>

#include "train/model/layers.h"

namespace unisono::train {
namespace {

class Residual final : public Layer {
 public:
  explicit Residual(Layers inner) : inner_(std::move(inner)) {
    if (inner_.empty()) throw std::invalid_argument("residual: there is no layer inside");
  }

  void declare(Declaration& declaration) override {
    for (std::size_t i = 0; i < inner_.size(); ++i) {
      Declaration inner = declaration.inner(i);
      inner_[i]->declare(inner);
    }
  }

  void initialise(Arena& parameters, Arena& buffers, Random& random) const override {
    for (const auto& layer : inner_) layer->initialise(parameters, buffers, random);
  }

  Tensor forward(const Tensor& input, Call& call, Saved* saved) const override {
    Tensor x;  // the input of every inner layer but the first
    for (std::size_t i = 0; i < inner_.size(); ++i) {
      Saved* part = saved == nullptr ? nullptr : &saved->parts.emplace_back();
      Tensor y = inner_[i]->forward(i == 0 ? input : x, call, part);
      if (saved != nullptr && i > 0) saved->tensors.push_back(std::move(x));
      x = std::move(y);
    }
    call.backend.add(input.data(), x.size(), x.data());
    return x;
  }

  Tensor backward(const Tensor& input, const Tensor& output_gradient, Call& call,
                  Saved& saved) const override {
    Call inside = call;
    inside.input_gradient = true;
    Tensor gradient;  // empty: still output_gradient
    for (std::size_t i = inner_.size(); i-- > 0;) {
      const Tensor& x = i == 0 ? input : saved.tensors.back();
      if (i == 0) inside.input_gradient = call.input_gradient;
      const bool last = i + 1 == inner_.size();
      gradient =
          inner_[i]->backward(x, last ? output_gradient : gradient, inside, saved.parts.back());
      saved.parts.pop_back();
      if (i > 0) saved.tensors.pop_back();
    }
    if (call.input_gradient) {
      call.backend.add(output_gradient.data(), gradient.size(), gradient.data());
    }
    return gradient;
  }

  std::size_t batch_norms() const override {
    std::size_t count = 0;
    for (const auto& layer : inner_) count += layer->batch_norms();
    return count;
  }

 private:
  Layers inner_;
};

}  // namespace

std::shared_ptr<Layer> make_residual(Layers inner) {
  return std::make_shared<Residual>(std::move(inner));
}

}  // namespace unisono::train
