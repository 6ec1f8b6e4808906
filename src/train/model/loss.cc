// Losses: what may be given, and who computes.
#include "unisono/train/loss.h"

#include <string>

#include "train/model/backend.h"

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
  const auto rows = static_cast<double>(targets.size());
  Backend& backend = backend_of(outputs);
  if (gradient != nullptr) *gradient = uninitialised_beside(outputs);
  return backend.cross_entropy(targets, classes, outputs.data(), static_cast<double>(scale) / rows,
                               gradient == nullptr ? nullptr : gradient->data()) /
         rows;
}

std::size_t count_correct(const Tensor& outputs, std::span<const std::int32_t> targets) {
  if (targets.empty() && outputs.empty()) return 0;
  const std::size_t classes = checked_classes(outputs, targets);
  return backend_of(outputs).count_correct(targets, classes, outputs.data());
}

}  // namespace unisono::train
