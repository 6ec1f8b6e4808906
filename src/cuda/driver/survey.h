// What GPUs this process can use and, where there is none, why: for `unisono info` and for
// messages. Compiles without the CUDA headers. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace unisono::cuda {

/// One device as the driver describes it; ordinals count what CUDA_VISIBLE_DEVICES leaves.
struct DeviceRow {
  int ordinal = 0;
  std::string name;
  std::string bus_id;
  std::uint64_t memory_bytes = 0;
  int multiprocessors = 0;
  int capability_major = 0;
  int capability_minor = 0;
};

struct Survey {
  int driver_version = 0;  ///< 13000 is 13.0
  std::vector<DeviceRow> devices;
};

/// `use` and `library` are the values of UNISONO_CUDA and UNISONO_CUDA_LIBRARY. Initialises the
/// driver unless `use` is "off". kUnsupported says why there is no GPU: this build, the setting, no
/// driver, a driver too old, no device.
Result<Survey> survey_devices(const std::string& use, const std::string& library);

/// "13.0" of 13000.
std::string version_text(int version);

}  // namespace unisono::cuda
