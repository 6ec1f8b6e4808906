// Builds without CUDA: says so wherever a device is asked for. No state.
#include "cuda/device/refused_device.h"

namespace unisono::device {

Result<std::unique_ptr<RankDevice>> RankDevice::open(const Config& config, const DeviceWish& wish) {
  const Status reason(ErrorCode::kUnsupported,
                      "this unisono was built without CUDA; configure with "
                      "-DUNISONO_WITH_CUDA=ON and the CUDA toolkit 12.0 or newer");
  if (wish.ordinal >= 0 || config.cuda.use == "require") return reason;
  return RefusedDevice::make(reason);
}

}  // namespace unisono::device
