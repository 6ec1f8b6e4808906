#include "cuda/device/refused_device.h"

#include <dlfcn.h>

#include <cstdint>

namespace unisono::device {
namespace {

// The driver's numbers, unchanged since CUDA 4.
constexpr int kMemoryTypeAttribute = 2;
constexpr unsigned kMemoryTypeDevice = 2;
constexpr int kAttributeSince = 4000;

// cuGetProcAddress_v2, of drivers since 12.0.
using GetFunction = int (*)(const char* name, void** function, int version,
                            unsigned long long flags, int* found);

}  // namespace

std::unique_ptr<RankDevice> RefusedDevice::make(Status reason) {
  // Never unloaded: a driver library is not made for that.
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  const auto get = reinterpret_cast<GetFunction>(dlsym(library, "cuGetProcAddress_v2"));
  void* function = nullptr;
  int found = 0;
  if (get == nullptr || get("cuPointerGetAttribute", &function, kAttributeSince, 0, &found) != 0 ||
      function == nullptr) {
    return nullptr;
  }
  return std::unique_ptr<RankDevice>(
      new RefusedDevice(std::move(reason), reinterpret_cast<GetAttribute>(function)));
}

bool RefusedDevice::is_device_memory(const void* pointer) const {
  unsigned type = 0;
  return get_attribute_(&type, kMemoryTypeAttribute, reinterpret_cast<std::uintptr_t>(pointer)) ==
             0 &&
         type == kMemoryTypeDevice;
}

}  // namespace unisono::device
