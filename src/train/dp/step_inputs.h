// Checks of what a DataParallel is given; all throw std::invalid_argument. Stateless.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "unisono/train/data_parallel.h"

namespace unisono::train {

/// Inputs by name where the caller has them.
using InputView = std::map<std::string, const Tensor*>;

/// Devices named once each; none are device 0 alone.
std::vector<int> checked_devices(std::vector<int> devices);
std::size_t index_of(const std::vector<int>& devices, int device);
/// The extent along `dim` that all inputs have; there is at least one input, and it is not empty.
std::size_t samples_of(const InputView& inputs, std::size_t dim);
/// Only a NamedModel takes several inputs.
void check_fits(const InputView& inputs, const Model& model);

}  // namespace unisono::train
