// Sums in a fixed order that vectorises: sixteen running sums, then one double. The compiler may
// not reorder additions, so the order is spelled out.
#pragma once

#include <cstddef>

namespace unisono::train {

double lane_sum(const float* values, std::size_t count);
/// Of (values - centre) squared.
double lane_squares(const float* values, std::size_t count, float centre);
/// Of left * (right - centre).
double lane_centred_dot(const float* left, const float* right, std::size_t count, float centre);

}  // namespace unisono::train
