// Small workloads for the tests of the comparison: real models on made-up images.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tools/train/compare_workload.h"

namespace unisono::train::comparison {

/// A perceptron of these widths; the first is the images' pixels.
Workload mlp_workload(std::vector<std::size_t> widths, std::size_t samples, int devices);
/// Two convolutions with batch norms, 12 x 12 images.
Workload cnn_workload(std::size_t samples, int devices);

}  // namespace unisono::train::comparison
