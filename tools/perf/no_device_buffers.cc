// Builds without CUDA: says so. No state.
#include "cuda/driver/survey.h"
#include "tools/perf/device_buffers.h"

namespace unisono::perf {

Result<int> count_devices(const CudaConfig& config) {
  UNISONO_ASSIGN(const auto survey, cuda::survey_devices(config.use, config.library));
  return static_cast<int>(survey.devices.size());
}

Result<std::unique_ptr<DeviceBuffers>> DeviceBuffers::open(const CudaConfig& config, int) {
  UNISONO_TRY(count_devices(config));
  return Status(ErrorCode::kUnsupported, "this unisono was built without CUDA");
}

}  // namespace unisono::perf
