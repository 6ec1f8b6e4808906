// Builds without CUDA: device memory is noticed and refused. See device_calls.h.
#include "cuda/collectives/device_calls.h"
#include "cuda/device/rank_device.h"

namespace unisono {
namespace {

class RefusedCalls final : public DeviceCalls {
 public:
  explicit RefusedCalls(device::RankDevice& device) : device_(device) {}
  bool concerns(const Call& call) const override {
    return call.options.stream.has_value() ||
           (call.in != nullptr && device_.is_device_memory(call.in)) ||
           (call.out != nullptr && device_.is_device_memory(call.out));
  }
  Result<Operation*> start(StartedCall&, const CallShape&) override { return device_.refusal(); }
  Status close_gate(StartedCall&) override { return Status(); }
  bool has_unlaunched(Collective) const override { return false; }
  void replays_wait_for(std::vector<Rank>*) const override {}
  void end_replays(bool) override {}
  Status members_failure() const override { return Status(); }

 private:
  device::RankDevice& device_;
};

}  // namespace

std::unique_ptr<DeviceCalls> DeviceCalls::make(BackendHost&, device::RankDevice* device) {
  if (device == nullptr) return nullptr;
  return std::make_unique<RefusedCalls>(*device);
}

}  // namespace unisono
