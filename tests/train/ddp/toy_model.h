// A model small enough to know by heart, for the strategies of one rank per process: linear, so
// that small integers train without rounding, with parameters that passes may leave out, gradients
// that become final in any order, a buffer, and random numbers.
//
//   output[row] = noise(row) * sum over k and i of  p_k[i] * input[row][(i + k) mod features]
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "unisono/train/data.h"
#include "unisono/train/model.h"

namespace unisono::test {

struct ToyOptions {
  std::vector<std::size_t> counts{3, 5, 2, 7};  ///< elements of the parameters p0, p1, ...
  std::size_t features = 4;
  bool has_noise = false;  ///< else noise() is 1
  /// Where the initial values come from; 0: small integers.
  std::uint64_t seed = 0;
};

class ToyModel : public train::Model {
 public:
  explicit ToyModel(ToyOptions options = {});

  train::Tensor forward(const train::Tensor& inputs, train::Pass& pass) override;
  void backward(const train::Tensor& output_gradient, train::Pass& pass) override;
  std::unique_ptr<train::Model> clone() const override;
  std::string describe() const override { return "toy"; }

  /// Left out of passes: neither used nor given a gradient.
  std::vector<int> unused;
  /// The order in which gradients become final; empty: from the last parameter to the first.
  std::vector<int> arrival;
  /// Called before the gradient of a parameter is computed.
  std::function<void(int parameter)> before_gradient;

 private:
  bool uses(int parameter) const;
  float noise(std::size_t row, const train::Pass& pass) const;

  ToyOptions options_;
  train::Tensor inputs_;
};

/// Rows first .. first + count - 1 of a step's global batch: integers from -2 to 2, integer targets
/// from -3 to 3. The same on every rank.
train::Batch toy_batch(std::uint64_t step, std::size_t first, std::size_t count,
                       std::size_t features = 4);

/// Mean over rows of (output - target)^2 / 2, in the form of train::cross_entropy.
double squared_loss(const train::Tensor& outputs, std::span<const std::int32_t> targets,
                    train::Tensor* gradient, float scale);

/// A copy of an arena's values.
std::vector<float> values_of(const train::Arena& arena);

}  // namespace unisono::test
