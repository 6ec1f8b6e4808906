// Device memory for network devices (GPUDirect RDMA): the driver makes a dma-buf of an address
// range, which a network device registers with an offset, a length and the address that peers name
// (ibv_reg_dmabuf_mr).
#include <fmt/format.h>
#include <unistd.h>

#include "cuda/driver/driver_section.h"
#include "cuda/memory/device_memory_state.h"

namespace unisono::cuda {
namespace {

// Whether what a network device has written is seen by work that is enqueued after that was told.
bool is_ordered(const Device& device) {
  return attribute_of(*device.api, device.handle,
                      CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING) >=
         CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER;
}

bool can_flush(const Device& device) {
  return (attribute_of(*device.api, device.handle,
                       CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS) &
          CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST) != 0 &&
         device.api->FlushGPUDirectRDMAWrites != nullptr;
}

std::string action(const Device& device, const void* pointer, std::size_t bytes) {
  return fmt::format("making a dma-buf of {} on {}", buffer_text(pointer, bytes), device.name);
}

}  // namespace

std::string direct_missing(const Device& device) {
  const bool makes_dma_bufs =
      attribute_of(*device.api, device.handle, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED) != 0 &&
      device.api->MemGetHandleForAddressRange != nullptr;
  if (!makes_dma_bufs) return "the device or its driver makes no dma-bufs";
  if (is_ordered(device) || can_flush(device)) return "";
  return "the platform does not order their writes, and the driver cannot flush them";
}

Result<UniqueFd> make_dma_buf(const Device& device, const void* pointer, std::size_t bytes,
                              std::uint64_t* offset) {
  const CudaApi& api = *device.api;
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
                        action(device, pointer, bytes)));
  *offset = address - begin;
  return UniqueFd(fd);
}

Result<std::shared_ptr<DirectMemory>> DeviceMemory::direct(const void* pointer, std::size_t bytes) {
  const Device& device = state_->device;
  if (const std::string missing = direct_missing(device); !missing.empty()) {
    return Status(ErrorCode::kUnsupported,
                  "network devices cannot move memory of " + device.name + ": " + missing);
  }
  if (pointer == nullptr || bytes == 0) {
    return Status(ErrorCode::kInvalidArgument,
                  "there is no buffer for network devices to move on " + device.name);
  }
  UNISONO_ASSIGN(const PointerRecord record, check_buffer(device, pointer, bytes));
  if (!record.facts.device || record.facts.ordinal != device.ordinal) {
    return Status(ErrorCode::kInvalidArgument,
                  buffer_text(pointer, bytes) + " is no memory of " + device.name);
  }
  if (record.managed || record.buffer_id == 0) {
    return Status(ErrorCode::kUnsupported,
                  "managed memory of " + device.name +
                      " may move, and other memory without one number may be mapped anew");
  }
  const std::lock_guard lock(state_->copy_stream_mutex);
  if (state_->copy_stream == nullptr) {
    UNISONO_ASSIGN(state_->copy_stream, CopyStream::make(device));
  }
  return std::shared_ptr<DirectMemory>(std::make_shared<DirectBuffer>(
      state_->copy_stream, std::span(static_cast<const std::byte*>(pointer), bytes),
      record.buffer_id));
}

Status DeviceMemory::flush_direct() {
  const Device& device = state_->device;
  if (is_ordered(device)) return Status();
  const CudaApi& api = *device.api;
  const DriverSection section(api, device.context);
  UNISONO_TRY(section.status());
  return api.check(api.FlushGPUDirectRDMAWrites(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                                CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER),
                   "flushing what network devices wrote to " + device.name);
}

}  // namespace unisono::cuda
