#include "cuda/memory/direct_buffer.h"

#include <fmt/format.h>

#include "cuda/driver/driver_section.h"

namespace unisono::cuda {

Result<std::shared_ptr<CopyStream>> CopyStream::make(const Device& device) {
  auto made = std::make_shared<CopyStream>(device);
  const DriverSection section(*device.api, device.context);
  UNISONO_TRY(section.status());
  // Copies are waited for, perhaps while a stream of the user's waits for them.
  UNISONO_TRY(device.api->check(device.api->StreamCreateWithPriority(
                                    &made->stream_, CU_STREAM_NON_BLOCKING, kHighestStreamPriority),
                                "making a stream on " + device.name));
  return made;
}

CopyStream::~CopyStream() {
  if (stream_ == nullptr) return;
  const DriverSection section(*device_.api, device_.context);
  device_.api->StreamDestroy(stream_);
}

Status CopyStream::copy(void* to, const void* from, std::size_t bytes) {
  const CudaApi& api = *device_.api;
  const std::lock_guard lock(mutex_);
  const DriverSection section(api, device_.context);
  UNISONO_TRY(section.status());
  const auto address = [](const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); };
  CUresult result = api.MemcpyAsync(address(to), address(from), bytes, stream_);
  if (result == CUDA_SUCCESS) result = api.StreamSynchronize(stream_);
  return api.check(result, fmt::format("copying {} bytes of a message or block to or from {}",
                                       bytes, device_.name));
}

bool DirectBuffer::is_alive(const std::byte* address, std::uint64_t allocation) const {
  const auto now = query_pointer(*stream_->device().api, address);
  return now && now->known && now->buffer_id == allocation;
}

Result<UniqueFd> DirectBuffer::dma_buf(std::span<const std::byte> piece, std::uint64_t* offset) {
  return make_dma_buf(stream_->device(), piece.data(), piece.size(), offset);
}

}  // namespace unisono::cuda
