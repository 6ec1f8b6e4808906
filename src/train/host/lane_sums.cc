#include "train/host/lane_sums.h"

#include <array>

namespace unisono::train {
namespace {

constexpr std::size_t kLanes = 16;

template <typename Term>
double in_lanes(std::size_t count, Term term) {
  std::array<float, kLanes> lanes{};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  }
  double sum = 0;
  for (const float lane : lanes) sum += static_cast<double>(lane);
  for (; i < count; ++i) sum += static_cast<double>(term(i));
  return sum;
}

}  // namespace

double lane_sum(const float* values, std::size_t count) {
  return in_lanes(count, [values](std::size_t i) { return values[i]; });
}

double lane_squares(const float* values, std::size_t count, float centre) {
  return in_lanes(count, [=](std::size_t i) {
    const float distance = values[i] - centre;
    return distance * distance;
  });
}

double lane_centred_dot(const float* left, const float* right, std::size_t count, float centre) {
  return in_lanes(count, [=](std::size_t i) { return left[i] * (right[i] - centre); });
}

}  // namespace unisono::train
