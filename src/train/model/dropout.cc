// Dropout whose mask is a function of the pass and the element: nothing is kept, and a recomputed
// forward drops the same.
#include <stdexcept>

#include "train/model/layers.h"

namespace unisono::train {
namespace {

class Dropout final : public Layer {
 public:
  Dropout(float probability, std::uint64_t number) : probability_(probability), number_(number) {
    if (!(probability >= 0 && probability < 1)) {
      throw std::invalid_argument("dropout: probability " + std::to_string(probability) +
                                  " is not in [0, 1)");
    }
  }

  Tensor forward(const Tensor& input, Call& call, Saved*) const override {
    return masked(input, call);
  }

  Tensor backward(const Tensor&, const Tensor& output_gradient, Call& call, Saved&) const override {
    return masked(output_gradient, call);
  }

 private:
  Tensor masked(const Tensor& values, const Call& call) const {
    const Pass& pass = call.pass;
    if (!pass.training) return values;
    Tensor result = Tensor::uninitialised(values.shape());
    std::uint64_t key = mixed(pass.seed + 0x9e3779b97f4a7c15ULL);
    key = mixed(key ^ pass.step);
    key = mixed(key ^ pass.micro_batch);
    key = mixed(key ^ number_);
    call.backend.dropout(values.data(), values.size(), {key, probability_}, result.data());
    return result;
  }

  float probability_;
  std::uint64_t number_;
};

}  // namespace

std::shared_ptr<Layer> make_dropout(float probability, std::uint64_t number) {
  return std::make_shared<Dropout>(probability, number);
}

}  // namespace unisono::train
