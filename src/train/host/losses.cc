// Cross entropy and the count of right answers, row by row, in double.
#include <algorithm>
#include <cmath>

#include "train/host/host_backend.h"

namespace unisono::train {

double HostBackend::cross_entropy(std::span<const std::int32_t> targets, std::size_t classes,
                                  const float* logits, double weight, float* gradient) {
  std::vector<double> exponentials(classes);
  double total = 0;
  for (std::size_t row = 0; row < targets.size(); ++row, logits += classes) {
    const auto target = static_cast<std::size_t>(targets[row]);
    const float largest = *std::max_element(logits, logits + classes);
    double sum = 0;
    for (std::size_t c = 0; c < classes; ++c) {
      exponentials[c] = std::exp(static_cast<double>(logits[c] - largest));
      sum += exponentials[c];
    }
    total += std::log(sum) - static_cast<double>(logits[target] - largest);
    if (gradient == nullptr) continue;
    float* out = gradient + row * classes;
    for (std::size_t c = 0; c < classes; ++c) {
      const double expected = c == target ? 1.0 : 0.0;
      out[c] = static_cast<float>((exponentials[c] / sum - expected) * weight);
    }
  }
  return total;
}

std::size_t HostBackend::count_correct(std::span<const std::int32_t> targets, std::size_t classes,
                                       const float* logits) {
  std::size_t correct = 0;
  for (const std::int32_t target : targets) {
    correct += std::max_element(logits, logits + classes) - logits == target ? 1 : 0;
    logits += classes;
  }
  return correct;
}

}  // namespace unisono::train
