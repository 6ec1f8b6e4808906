// Device memory for network devices: the driver makes a dma-buf of an address range, and
// VerbsApi::reg_dmabuf_mr registers it with offset, length and the address that peers will name.
#include <fmt/format.h>
#include <unistd.h>

#include "transports/cuda/device_memory_state.h"
#include "transports/cuda/driver_section.h"

namespace unisono::cuda {

Result<UniqueFd> DeviceMemory::dma_buf(const void* pointer, std::size_t bytes,
                                       std::uint64_t* offset) {
  const Device& device = state_->device;
  const CudaApi& api = *device.api;
  const std::string what =
      fmt::format("making a dma-buf of {} on {}", buffer_text(pointer, bytes), device.name);
  if (pointer == nullptr || bytes == 0) {
    return Status(ErrorCode::kInvalidArgument, what + ": there is no buffer");
  }
  int offered = 0;
  const CUresult asked =
      api.DeviceGetAttribute(&offered, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, device.handle);
  if (asked != CUDA_SUCCESS || offered == 0 || api.MemGetHandleForAddressRange == nullptr) {
    return Status(ErrorCode::kUnsupported, what + ": the device or its driver offers none");
  }
  UNISONO_ASSIGN(const PointerRecord record, check_buffer(device, pointer, bytes));
  if (!record.facts.device || record.facts.ordinal != device.ordinal) {
    return Status(ErrorCode::kInvalidArgument, what + ": it is no memory of this device");
  }
  // The driver wants whole pages of the host; allocations are padded to them.
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  const CUdeviceptr begin = address / page * page;
  const CUdeviceptr end = (address + bytes + page - 1) / page * page;
  const DriverSection section(api, device.context);
  UNISONO_TRY(section.status());
  int fd = -1;
  UNISONO_TRY(api.check(api.MemGetHandleForAddressRange(&fd, begin, end - begin,
                                                        CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
                        what));
  *offset = address - begin;
  return UniqueFd(fd);
}

}  // namespace unisono::cuda
