// One device as DeviceMemory's parts see it. Filled once by DeviceMemory::open, immutable after.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "cuda/driver/cuda_api.h"

namespace unisono::cuda {

struct Device {
  std::shared_ptr<const CudaApi> api;
  CUdevice handle = 0;
  int ordinal = -1;
  CUcontext context = nullptr;  ///< the primary one
  std::array<std::uint8_t, 16> uuid = {};
  std::string name;             ///< "device 0 (NVIDIA H200, 0000:1b:00.0)"
  std::string windows_missing;  ///< empty where windows can be made
};

/// 0 where the driver does not know the attribute.
inline int attribute_of(const CudaApi& api, CUdevice device, CUdevice_attribute attribute) {
  int value = 0;
  return api.DeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS ? value : 0;
}

}  // namespace unisono::cuda
