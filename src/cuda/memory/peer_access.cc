#include "cuda/memory/peer_access.h"

#include <fmt/format.h>

#include <cstring>

#include "cuda/driver/driver_section.h"

namespace unisono::cuda {

Status PeerAccess::check_reachable(int ordinal) const {
  const CudaApi& api = *device_.api;
  if (ordinal == device_.ordinal) return {};
  const std::string what = fmt::format("{} and device {}", device_.name, ordinal);
  CUdevice other = 0;
  UNISONO_TRY(api.check(api.DeviceGet(&other, ordinal), what));
  // A driver that cannot be asked answers when peers are enabled or mapped.
  if (api.DeviceCanAccessPeer == nullptr) return {};
  int can = 0;
  UNISONO_TRY(api.check(api.DeviceCanAccessPeer(&can, device_.handle, other), what));
  if (can != 0) return {};
  return {ErrorCode::kUnsupported,
          what + " cannot reach each other's memory (no NVLink or PCIe peer access between them)"};
}

Status PeerAccess::enable(int ordinal) {
  if (ordinal == device_.ordinal || retained_.count(ordinal) != 0) return {};
  UNISONO_TRY(check_reachable(ordinal));
  const CudaApi& api = *device_.api;
  const std::string what =
      fmt::format("enabling peer access from {} to device {}", device_.name, ordinal);
  if (api.CtxEnablePeerAccess == nullptr) {
    return {ErrorCode::kUnsupported, what + ": the driver has no cuCtxEnablePeerAccess"};
  }
  CUdevice other = 0;
  CUcontext context = nullptr;
  UNISONO_TRY(api.check(api.DeviceGet(&other, ordinal), what));
  UNISONO_TRY(api.check(api.DevicePrimaryCtxRetain(&context, other), what));
  CUresult result;
  {
    const DriverSection section(api, device_.context);
    if (!section.status()) {
      api.DevicePrimaryCtxRelease(other);
      return section.status();
    }
    result = api.CtxEnablePeerAccess(context, 0);
  }
  // Another rank of this process, or the application, may have come first.
  if (result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) result = CUDA_SUCCESS;
  if (result != CUDA_SUCCESS) {
    api.DevicePrimaryCtxRelease(other);
    const Status cause = api.check(result, what);
    return {result == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED ? ErrorCode::kUnsupported : cause.code(),
            cause.message()};
  }
  retained_[ordinal] = other;
  return {};
}

int PeerAccess::ordinal_of(const std::array<std::uint8_t, 16>& uuid) const {
  const CudaApi& api = *device_.api;
  if (uuid == device_.uuid) return device_.ordinal;
  int count = 0;
  if (api.DeviceGetCount(&count) != CUDA_SUCCESS) return -1;
  for (int i = 0; i < count; ++i) {
    CUdevice other = 0;
    CUuuid found;
    if (api.DeviceGet(&other, i) != CUDA_SUCCESS) continue;
    if (api.DeviceGetUuid(&found, other) != CUDA_SUCCESS) continue;
    if (std::memcmp(found.bytes, uuid.data(), uuid.size()) == 0) return i;
  }
  return -1;
}

std::vector<std::array<std::uint8_t, 16>> PeerAccess::out_of_reach() const {
  const CudaApi& api = *device_.api;
  std::vector<std::array<std::uint8_t, 16>> found;
  int count = 0;
  if (api.DeviceGetCount(&count) != CUDA_SUCCESS) return found;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUdevice other = 0;
    CUuuid uuid;
    if (check_reachable(ordinal) || api.DeviceGet(&other, ordinal) != CUDA_SUCCESS) continue;
    if (api.DeviceGetUuid(&uuid, other) != CUDA_SUCCESS) continue;
    std::memcpy(found.emplace_back().data(), uuid.bytes, sizeof uuid.bytes);
  }
  return found;
}

void PeerAccess::close(CleanupReport& report) {
  for (const auto& [ordinal, other] : retained_) {
    report.note(device_.api->DevicePrimaryCtxRelease(other),
                fmt::format("releasing the context of device {}", ordinal));
  }
  retained_.clear();
}

}  // namespace unisono::cuda
