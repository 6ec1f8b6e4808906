#include "cuda/driver/survey.h"

#include <array>

#include "cuda/driver/cuda_api.h"

namespace unisono::cuda {
namespace {

Result<DeviceRow> describe(const CudaApi& api, int ordinal) {
  const std::string what = "describing device " + std::to_string(ordinal);
  CUdevice device = 0;
  UNISONO_TRY(api.check(api.DeviceGet(&device, ordinal), what));
  DeviceRow row;
  row.ordinal = ordinal;
  std::array<char, 256> text{};
  UNISONO_TRY(api.check(api.DeviceGetName(text.data(), text.size() - 1, device), what));
  row.name = text.data();
  text.fill('\0');
  UNISONO_TRY(api.check(api.DeviceGetPCIBusId(text.data(), text.size() - 1, device), what));
  row.bus_id = text.data();
  std::size_t bytes = 0;
  UNISONO_TRY(api.check(api.DeviceTotalMem(&bytes, device), what));
  row.memory_bytes = bytes;
  const struct {
    CUdevice_attribute attribute;
    int* value;
  } numbers[]{{CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &row.multiprocessors},
              {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &row.capability_major},
              {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &row.capability_minor}};
  for (const auto& number : numbers) {
    UNISONO_TRY(api.check(api.DeviceGetAttribute(number.value, number.attribute, device), what));
  }
  return row;
}

}  // namespace

Result<Survey> survey_devices(const std::string& use, const std::string& library) {
  if (use == "off") return Status(ErrorCode::kUnsupported, "UNISONO_CUDA=off");
  UNISONO_ASSIGN(const std::shared_ptr<const CudaApi> api, load_cuda_driver(library));
  Survey survey;
  survey.driver_version = api->version;
  const CUresult started = api->Init(0);
  if (started == CUDA_ERROR_NO_DEVICE) {
    return Status(ErrorCode::kUnsupported,
                  "the driver (CUDA " + version_text(api->version) +
                      ") sees no GPU: CUDA_VISIBLE_DEVICES may hide it, or the container may lack "
                      "its device files");
  }
  UNISONO_TRY(api->check(started, "initialising the CUDA driver"));
  int count = 0;
  UNISONO_TRY(api->check(api->DeviceGetCount(&count), "counting the devices"));
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    UNISONO_ASSIGN(DeviceRow row, describe(*api, ordinal));
    survey.devices.push_back(std::move(row));
  }
  return survey;
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace unisono::cuda
