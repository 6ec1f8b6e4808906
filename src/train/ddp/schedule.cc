#include "unisono/train/schedule.h"

#include <cmath>
#include <span>
#include <stdexcept>
#include <string>

namespace unisono::train {
namespace {

float factor_of(const ScheduleOptions& options) {
  const double ratio =
      static_cast<double>(options.global_batch) / static_cast<double>(options.base_batch);
  switch (options.scaling) {
    case RateScaling::kNone:
      return 1.0F;
    case RateScaling::kLinear:
      return static_cast<float>(ratio);
    case RateScaling::kSquareRoot:
      return static_cast<float>(std::sqrt(ratio));
  }
  return 1.0F;
}

}  // namespace

LearningRateSchedule::LearningRateSchedule(ScheduleOptions options) : options_(options) {
  if (!(options.base_rate > 0.0F) || !std::isfinite(options.base_rate)) {
    throw std::invalid_argument("a learning rate of " + std::to_string(options.base_rate) +
                                "; it must be a positive number");
  }
  if (options.base_batch == 0 || options.global_batch == 0) {
    throw std::invalid_argument("a learning rate scales between batches of at least one sample");
  }
  scaled_ = options.base_rate * factor_of(options);
}

float LearningRateSchedule::at(std::size_t step) const {
  if (step >= options_.warm_up_steps) return scaled_;
  const double part = static_cast<double>(step) / static_cast<double>(options_.warm_up_steps);
  return static_cast<float>(options_.base_rate +
                            (static_cast<double>(scaled_) - options_.base_rate) * part);
}

double mean_loss(Communicator& communicator, double mine) {
  if (communicator.size() > 1) communicator.all_reduce(std::span(&mine, 1), ops::average);
  return mine;
}

}  // namespace unisono::train
