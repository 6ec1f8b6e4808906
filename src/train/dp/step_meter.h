// What a step of a DeviceGroup took: memory, traffic and threads since it began.
//
// Owned by a DataParallel. Threads: one thread at a time.
#pragma once

#include <cstddef>
#include <vector>

#include "train/dp/device_group.h"
#include "unisono/train/data_parallel.h"

namespace unisono::train {

class StepMeter {
 public:
  explicit StepMeter(DeviceGroup& group) : group_(group) {}

  /// A pass of these samples per device begins; the first one after end() begins a step.
  void begin(const std::vector<std::size_t>& chunks);
  void note_loss(double loss) { loss_ = loss; }
  void end() { is_running_ = false; }
  /// Of the step that runs, or the last one.
  StepReport report();

 private:
  DeviceGroup& group_;
  bool is_running_ = false;
  double loss_ = 0;
  std::size_t threads_before_ = 0;
  std::vector<std::size_t> chunks_;
  std::vector<TrafficReport> before_;
};

}  // namespace unisono::train
