// Reports as differences of what the devices count.
#include "train/dp/step_meter.h"

#include <numeric>

namespace unisono::train {

void StepMeter::begin(const std::vector<std::size_t>& chunks) {
  chunks_ = chunks;
  if (is_running_) return;
  is_running_ = true;
  threads_before_ = group_.threads_started();
  before_.resize(group_.size());
  group_.run_all([this](Device& device) {
    device.memory.wait();  // calls are counted when they are over
    device.memory.reset_peak();
    before_[device.index] = device.traffic();
  });
}

StepReport StepMeter::report() {
  StepReport report;
  report.loss = loss_;
  report.samples = std::accumulate(chunks_.begin(), chunks_.end(), std::size_t{0});
  report.threads_started = group_.threads_started() - threads_before_;
  report.devices.resize(group_.size());
  before_.resize(group_.size());
  group_.run_all([&](Device& device) {
    DeviceReport& mine = report.devices[device.index];
    device.memory.wait();
    const MemoryUse use = device.memory.use();
    mine.device = device.id;
    mine.samples = device.index < chunks_.size() ? chunks_[device.index] : 0;
    mine.peak_memory = use.peak;
    mine.memory = use.now;
    mine.traffic = device.traffic() - before_[device.index];
  });
  return report;
}

}  // namespace unisono::train
