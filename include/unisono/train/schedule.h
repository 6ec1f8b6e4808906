// Around a training step: the learning rate of each step, and the loss that people are shown.
// Threads: like std::vector.
#pragma once

#include <cstddef>

#include "unisono/communicator.h"

namespace unisono::train {

/// How the learning rate follows the global batch. Valid for averaged gradients, which all
/// strategies here make.
enum class RateScaling {
  kNone,
  kLinear,      ///< times global batch / base batch: SGD (Goyal et al., 2017)
  kSquareRoot,  ///< times its square root: Adam and its kin
};

struct ScheduleOptions {
  float base_rate = 0.1F;  ///< good for base_batch
  RateScaling scaling = RateScaling::kNone;
  std::size_t base_batch = 32;
  std::size_t global_batch = 32;  ///< samples per step over all ranks and accumulated passes
  /// Steps in which the rate goes in a straight line from base_rate to the scaled one.
  std::size_t warm_up_steps = 0;
};

class LearningRateSchedule {
 public:
  /// std::invalid_argument for a rate that is no positive number and for a batch of no samples.
  explicit LearningRateSchedule(ScheduleOptions options);
  /// Of step 0, 1, ...: base_rate at step 0 of a warm-up, scaled() from its end on.
  float at(std::size_t step) const;
  float scaled() const { return scaled_; }

 private:
  ScheduleOptions options_;
  float scaled_;
};

/// The average of all ranks' losses. For people, after the backward pass: no gradient flows through
/// it. Collective, except that a single rank makes no call.
double mean_loss(Communicator& communicator, double mine);

/// Mean of what was added: (step * mean + loss) / (step + 1).
class RunningMean {
 public:
  void add(double loss) {
    mean_ = (static_cast<double>(steps_) * mean_ + loss) / static_cast<double>(steps_ + 1);
    ++steps_;
  }
  double value() const { return mean_; }
  std::size_t steps() const { return steps_; }

 private:
  double mean_ = 0.0;
  std::size_t steps_ = 0;
};

}  // namespace unisono::train
