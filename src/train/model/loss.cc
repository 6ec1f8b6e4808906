// Cross entropy and the count of right answers, row by row.
#include "unisono/train/loss.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace unisono::train {
namespace {

/// The number of classes. What is not one target per row and a class each is the caller's mistake.
std::size_t checked_classes(const Tensor& outputs, std::span<const std::int32_t> targets) {
  if (outputs.shape().size() != 2 || outputs.dim(0) != targets.size()) {
    throw std::invalid_argument("loss: outputs of shape " + to_string(outputs.shape()) + " for " +
                                std::to_string(targets.size()) +
                                " targets; they are [targets, classes]");
  }
  const std::size_t classes = outputs.dim(1);
  for (std::size_t row = 0; row < targets.size(); ++row) {
    if (targets[row] < 0 || static_cast<std::size_t>(targets[row]) >= classes) {
      throw std::invalid_argument("loss: target " + std::to_string(targets[row]) + " of row " +
                                  std::to_string(row) + " is none of the " +
                                  std::to_string(classes) + " classes");
    }
  }
  return classes;
}

}  // namespace

double cross_entropy(const Tensor& outputs, std::span<const std::int32_t> targets, Tensor* gradient,
                     float scale) {
  if (targets.empty() && outputs.empty()) {
    if (gradient != nullptr) *gradient = Tensor(outputs.shape());
    return 0;
  }
  const std::size_t classes = checked_classes(outputs, targets);
  const std::size_t rows = targets.size();
  const double weight = static_cast<double>(scale) / static_cast<double>(rows);
  if (gradient != nullptr) *gradient = Tensor::uninitialised(outputs.shape());
  std::vector<double> exponentials(classes);
  double total = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    const float* logits = outputs.data() + row * classes;
    const auto target = static_cast<std::size_t>(targets[row]);
    const float largest = *std::max_element(logits, logits + classes);
    double sum = 0;
    for (std::size_t c = 0; c < classes; ++c) {
      exponentials[c] = std::exp(static_cast<double>(logits[c] - largest));
      sum += exponentials[c];
    }
    total += std::log(sum) - static_cast<double>(logits[target] - largest);
    if (gradient == nullptr) continue;
    float* out = gradient->data() + row * classes;
    for (std::size_t c = 0; c < classes; ++c) {
      const double expected = c == target ? 1.0 : 0.0;
      out[c] = static_cast<float>((exponentials[c] / sum - expected) * weight);
    }
  }
  return total / static_cast<double>(rows);
}

std::size_t count_correct(const Tensor& outputs, std::span<const std::int32_t> targets) {
  if (targets.empty() && outputs.empty()) return 0;
  const std::size_t classes = checked_classes(outputs, targets);
  std::size_t correct = 0;
  for (std::size_t row = 0; row < targets.size(); ++row) {
    const float* logits = outputs.data() + row * classes;
    const auto best = std::max_element(logits, logits + classes) - logits;
    correct += best == targets[row] ? 1 : 0;
  }
  return correct;
}

}  // namespace unisono::train
