// A rank that cannot use device memory in a process that may have some all the same: notices it
// in calls and says why it is refused, instead of touching it from the host.
//
// Thread rule: immutable, any thread.
#pragma once

#include "cuda/device/rank_device.h"

namespace unisono::device {

class RefusedDevice final : public RankDevice {
 public:
  /// Null where no CUDA driver is loaded in this process, and so no device memory can come.
  static std::unique_ptr<RankDevice> make(Status reason);

  std::string published() const override { return ""; }
  bool is_device_memory(const void* pointer) const override;
  Result<Device*> device_for(const void*) override { return reason_; }
  Device* device() const override { return nullptr; }
  Status refusal() const override { return reason_; }
  Result<void*> allocate(std::size_t) override { return reason_; }
  Status release(void*) override { return reason_; }

 private:
  /// cuPointerGetAttribute, whose header builds without CUDA do not have.
  using GetAttribute = int (*)(void* data, int attribute, unsigned long long pointer);

  RefusedDevice(Status reason, GetAttribute get_attribute)
      : reason_(std::move(reason)), get_attribute_(get_attribute) {}

  const Status reason_;
  const GetAttribute get_attribute_;
};

}  // namespace unisono::device
