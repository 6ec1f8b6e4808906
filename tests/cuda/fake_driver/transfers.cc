// Copies and fills.
#include "tests/cuda/fake_driver/transfers.h"

#include <atomic>
#include <cstdint>
#include <cstring>

#include "tests/cuda/fake_driver/capture.h"
#include "tests/cuda/fake_driver/entry.h"
#include "tests/cuda/fake_driver/memory.h"
#include "tests/cuda/fake_driver/streams.h"

namespace fake_cuda {
namespace {

std::atomic<std::uint64_t> copied{0};

bool is_pageable(std::uint64_t address) {
  return !is_device_address(address) && find_host(address) == nullptr;
}

// Device memory that is not there is refused by the call itself; a missing right shows later.
bool is_dead(std::uint64_t address) {
  return is_device_address(address) && find_mapping(address) == nullptr;
}

QueueKind kind_of_copy(CUdeviceptr target, CUdeviceptr source) {
  if (is_device_address(target) == is_device_address(source)) return QueueKind::kKernels;
  return is_device_address(source) ? QueueKind::kCopiesOut : QueueKind::kCopiesIn;
}

Operation copy_operation(CUctx_st* context, CUdeviceptr target, CUdeviceptr source,
                         std::size_t bytes, std::shared_ptr<std::vector<char>> staged) {
  const auto copy = [=] {
    Uses uses(*context, "a copy");
    void* to = uses.copy_at(reinterpret_cast<void*>(target), bytes, Access::kWrite);
    const void* from = staged ? staged->data()
                              : uses.copy_at(reinterpret_cast<void*>(source), bytes, Access::kRead);
    if (uses.failed()) return;
    std::memmove(to, from, bytes);
    copied += bytes;
  };
  return {.run = copy, .kind = kind_of_copy(target, source)};
}

// Between ordinary host memory and a device, the source is read before the call returns and the
// target is complete when it does. Between host memory and host memory, page-locked or not, the
// call waits for everything before it in the stream and returns when the copy is made.
CUresult copy_async(CUdeviceptr target, CUdeviceptr source, std::size_t bytes, CUstream handle) {
  Lock lock(machine().mutex);
  CUctx_st* context = nullptr;
  StreamPointer stream;
  if (const CUresult result = enter_stream(handle, &context, &stream); result != CUDA_SUCCESS) {
    return result;
  }
  if (bytes == 0) return CUDA_SUCCESS;
  if (is_dead(target) || is_dead(source)) {
    complain("a copy from " + hex(source) + " to " + hex(target) + ", where there is no memory");
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::shared_ptr<std::vector<char>> staged;
  const bool is_between_hosts = !is_device_address(source) && !is_device_address(target);
  if (is_pageable(source) && !is_between_hosts && !stream->capture) {
    const auto* first = reinterpret_cast<const char*>(source);
    staged = std::make_shared<std::vector<char>>(first, first + bytes);
  }
  const CUresult result =
      enqueue(*stream, copy_operation(context, target, source, bytes, std::move(staged)));
  const bool waits = is_pageable(target) || is_between_hosts;
  if (result != CUDA_SUCCESS || stream->capture || !waits) return result;
  return drain_stream(*stream, lock);
}

CUresult copy_now(CUdeviceptr target, CUdeviceptr source, std::size_t bytes) {
  if (const CUresult result = copy_async(target, source, bytes, nullptr); result != CUDA_SUCCESS) {
    return result;
  }
  Lock lock(machine().mutex);
  CUctx_st* context = nullptr;
  if (const CUresult result = current_context(&context); result != CUDA_SUCCESS) return result;
  return drain_stream(*context->legacy, lock);
}

CUresult copy_to_device(CUdeviceptr target, const void* source, std::size_t bytes) {
  return copy_now(target, reinterpret_cast<CUdeviceptr>(source), bytes);
}

CUresult copy_to_host(void* target, CUdeviceptr source, std::size_t bytes) {
  return copy_now(reinterpret_cast<CUdeviceptr>(target), source, bytes);
}

// A device writes a word whole, and kernels may look at it meanwhile.
void fill(void* to, unsigned char value, std::size_t bytes) {
  if (bytes == sizeof(std::uint32_t) && reinterpret_cast<std::uintptr_t>(to) % bytes == 0) {
    std::atomic_ref<std::uint32_t>(*static_cast<std::uint32_t*>(to)).store(0x01010101u * value);
  } else {
    std::memset(to, value, bytes);
  }
}

CUresult fill_async(CUdeviceptr target, unsigned char value, std::size_t bytes, CUstream handle) {
  const Lock lock(machine().mutex);
  CUctx_st* context = nullptr;
  StreamPointer stream;
  if (const CUresult result = enter_stream(handle, &context, &stream); result != CUDA_SUCCESS) {
    return result;
  }
  if (bytes == 0) return CUDA_SUCCESS;
  if (is_dead(target) || is_pageable(target)) {
    complain("a fill of " + hex(target) + ", which is no device memory");
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto run = [=] {
    Uses uses(*context, "a fill");
    void* to = uses.at(reinterpret_cast<void*>(target), bytes, Access::kWrite);
    if (!uses.failed()) fill(to, value, bytes);
  };
  return enqueue(*stream, {.run = run, .kind = QueueKind::kKernels});
}

}  // namespace

std::uint64_t copied_bytes() { return copied; }

std::vector<Entry> transfer_entries() {
  return {entry<&copy_async>("cuMemcpyAsync", 4000), entry<&copy_now>("cuMemcpy", 4000),
          entry<&copy_to_device>("cuMemcpyHtoD", 3020), entry<&copy_to_host>("cuMemcpyDtoH", 3020),
          entry<&fill_async>("cuMemsetD8Async", 3020)};
}

}  // namespace fake_cuda
