#include "train/cuda/gpu.h"

#include <stdexcept>

#include "base/result.h"
#include "config/config.h"

namespace unisono::train {

Gpu::Gpu(int ordinal) : name_("device " + std::to_string(ordinal)) {
  const Result<Config> config = Config::from_environment();
  if (!config) fail(config.error().message());
  if (config->cuda.use == "off") {
    fail("UNISONO_CUDA=off: set it to auto, or train on the host");
  }
  cublas_file_ = config->cuda.cublas_library;
  Result<std::shared_ptr<const cuda::CudaApi>> api = cuda::load_cuda_driver(config->cuda.library);
  if (!api) fail(api.error().message());
  api_ = std::move(*api);
  find_device(ordinal);
  check(api_->DevicePrimaryCtxRetain(&context_, device_), "opening it");
}

Gpu::~Gpu() { api_->DevicePrimaryCtxRelease(device_); }

void Gpu::find_device(int ordinal) {
  int count = 0;
  const CUresult started = api_->Init(0);
  if (started != CUDA_ERROR_NO_DEVICE) {
    check(started, "starting the CUDA driver");
    check(api_->DeviceGetCount(&count), "counting the devices");
  }
  if (count == 0) {
    fail(
        "the driver sees no GPU: see nvidia-smi and CUDA_VISIBLE_DEVICES; a container needs "
        "access to GPUs");
  }
  if (ordinal < 0 || ordinal >= count) {
    fail("there is no such device; the driver sees " + std::to_string(count) +
         ", counted from 0 to " + std::to_string(count - 1) +
         " (CUDA_VISIBLE_DEVICES chooses among those of the machine); several ranks may share one "
         "(--device-map 0)");
  }
  check(api_->DeviceGet(&device_, ordinal), "finding it");
  check(api_->DeviceTotalMem(&memory_bytes_, device_), "asking for its memory");
  const auto ask = [&](CUdevice_attribute attribute, int* value) {
    check(api_->DeviceGetAttribute(value, attribute, device_), "asking for an attribute");
  };
  ask(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &multiprocessors_);
  ask(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &capability_major_);
}

void Gpu::fail(CUresult result, const std::string& what) const {
  fail(api_->check(result, what).message());
}

void Gpu::fail(const std::string& reason) const { throw std::runtime_error(name_ + ": " + reason); }

}  // namespace unisono::train
