// Small models whose arithmetic is exact on small integers, and the losses that go with them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "unisono/train/data_parallel.h"

namespace unisono::train {

/// The value of an input at which a toy model throws std::runtime_error("forbidden input").
inline constexpr float kForbidden = -1024;

/// outputs = inputs * weight^T with [samples, inputs] in and [samples, outputs] out, or both
/// transposed. Its only buffer counts the samples that training passes have seen.
class ToyLinear : public Model {
 public:
  ToyLinear(std::size_t inputs, std::size_t outputs, bool samples_last = false);
  Tensor forward(const Tensor& inputs, Pass& pass) override;
  void backward(const Tensor& output_gradient, Pass& pass) override;
  std::unique_ptr<Model> clone() const override;
  std::string describe() const override { return "toy linear"; }

 private:
  float at(const Tensor& tensor, std::size_t sample, std::size_t feature) const;
  float& at(Tensor& tensor, std::size_t sample, std::size_t feature) const;

  std::size_t inputs_, outputs_;
  bool samples_last_;
  Tensor kept_;
};

/// Of "left" and "right" [samples, n]: outputs left * a and right * b, element by element, where a
/// and b [n] are parameters.
class ToyTwins : public NamedModel {
 public:
  explicit ToyTwins(std::size_t n);
  std::vector<Tensor> forward_named(const NamedTensors& inputs, Pass& pass) override;
  void backward_named(std::span<const Tensor> output_gradients, Pass& pass) override;
  std::unique_ptr<Model> clone() const override;
  std::string describe() const override { return "toy twins"; }

 private:
  NamedTensors kept_;
};

/// The loss inside: a scalar, the mean over samples of weight * "x".
class ToyInnerLoss : public NamedModel {
 public:
  ToyInnerLoss();
  std::vector<Tensor> forward_named(const NamedTensors& inputs, Pass& pass) override;
  void backward_named(std::span<const Tensor> output_gradients, Pass& pass) override;
  std::unique_ptr<Model> clone() const override;
  std::string describe() const override { return "toy inner loss"; }

 private:
  double mean_ = 0;
};

/// Half the mean over samples of the squared distance from the target, the same for every output.
double half_squares(const Tensor& outputs, std::span<const std::int32_t> targets, Tensor* gradient,
                    float scale);
/// The same where samples run along the last dimension.
double half_squares_last(const Tensor& outputs, std::span<const std::int32_t> targets,
                         Tensor* gradient, float scale);

/// Small integers that look random.
Tensor integers(Shape shape, std::uint32_t seed);
Batch integer_batch(std::size_t samples, std::size_t inputs, std::uint32_t seed);

std::vector<int> device_list(int devices);
/// Plain gradient descent: exact where its operands are.
OptimizerFactory plain_sgd();
std::vector<float> values_of(const Tensor& tensor);
std::vector<float> parameters_of(Model& model);

}  // namespace unisono::train
