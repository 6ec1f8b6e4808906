// What the caller gave, checked before any device sees it.
#include "train/dp/step_inputs.h"

#include <algorithm>
#include <stdexcept>

namespace unisono::train {

std::vector<int> checked_devices(std::vector<int> devices) {
  if (devices.empty()) return {0};
  std::vector<int> sorted = devices;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    throw std::invalid_argument("device " + std::to_string(*twice) + " is named twice");
  }
  return devices;
}

std::size_t index_of(const std::vector<int>& devices, int device) {
  const auto found = std::find(devices.begin(), devices.end(), device);
  if (found == devices.end()) {
    throw std::invalid_argument("device " + std::to_string(device) + " is none of the " +
                                std::to_string(devices.size()) + " devices");
  }
  return static_cast<std::size_t>(found - devices.begin());
}

std::size_t samples_of(const InputView& inputs, std::size_t dim) {
  if (inputs.empty()) throw std::invalid_argument("no input: there is nothing to scatter");
  const auto& [first_name, first] = *inputs.begin();
  for (const auto& [name, tensor] : inputs) {
    if (tensor->shape().size() <= dim) {
      throw std::invalid_argument("input '" + name + "' " + to_string(tensor->shape()) +
                                  " has no dimension " + std::to_string(dim) + " to scatter");
    }
    if (tensor->dim(dim) != first->dim(dim)) {
      throw std::invalid_argument("inputs '" + first_name + "' " + to_string(first->shape()) +
                                  " and '" + name + "' " + to_string(tensor->shape()) +
                                  " differ along dimension " + std::to_string(dim));
    }
  }
  if (first->dim(dim) == 0) throw std::invalid_argument("the batch is empty");
  return first->dim(dim);
}

void check_fits(const InputView& inputs, const Model& model) {
  if (inputs.size() <= 1 || dynamic_cast<const NamedModel*>(&model) != nullptr) return;
  throw std::invalid_argument(model.describe() + " takes one input and was given " +
                              std::to_string(inputs.size()) + "; derive it from NamedModel");
}

}  // namespace unisono::train
