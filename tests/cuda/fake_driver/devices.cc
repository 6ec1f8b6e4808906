// What the fake devices are: names, identities, attributes, and the words of errors.
#include <cstdio>
#include <cstring>

#include "tests/cuda/fake_driver/entry.h"
#include "tests/cuda/fake_driver/machine.h"

namespace fake_cuda {
namespace {

struct ErrorText {
  CUresult result;
  const char* name;
  const char* words;
};

constexpr ErrorText kErrors[]{
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_ALREADY_MAPPED, "CUDA_ERROR_ALREADY_MAPPED", "resource already mapped"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
     "peer access is not supported between these two devices"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
     "peer access is already enabled"},
    {CUDA_ERROR_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the requested memory range is already mapped"},
    {CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "pointer does not correspond to a registered memory region"},
    {CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CUDA_ERROR_STREAM_CAPTURE_MERGE, "CUDA_ERROR_STREAM_CAPTURE_MERGE",
     "operation would result in a merge of separate capture sequences"},
    {CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
     "capture was not ended in the same stream as it began"},
    {CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
     "capturing stream has unjoined work"},
    {CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {CUDA_ERROR_CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
    {CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

const ErrorText* text_of(CUresult result) {
  for (const ErrorText& error : kErrors) {
    if (error.result == result) return &error;
  }
  return nullptr;
}

CUresult error_name(CUresult result, const char** name) {
  const ErrorText* text = text_of(result);
  *name = text == nullptr ? nullptr : text->name;
  return text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult error_words(CUresult result, const char** words) {
  const ErrorText* text = text_of(result);
  *words = text == nullptr ? nullptr : text->words;
  return text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult device_count(int* count) {
  const Lock lock(machine().mutex);
  if (const CUresult result = check_initialised(); result != CUDA_SUCCESS) return result;
  *count = static_cast<int>(settings().devices.size());
  return CUDA_SUCCESS;
}

CUresult device_get(CUdevice* device, int ordinal) {
  const Lock lock(machine().mutex);
  if (const CUresult result = check_device(ordinal); result != CUDA_SUCCESS) return result;
  *device = ordinal;
  return CUDA_SUCCESS;
}

int physical(CUdevice device) { return settings().devices[static_cast<std::size_t>(device)]; }

CUresult device_name(char* name, int bytes, CUdevice device) {
  const Lock lock(machine().mutex);
  if (const CUresult result = check_device(device); result != CUDA_SUCCESS) return result;
  std::snprintf(name, static_cast<std::size_t>(bytes), "Fake GPU %d", physical(device));
  return CUDA_SUCCESS;
}

CUresult device_uuid(CUuuid* uuid, CUdevice device) {
  const Lock lock(machine().mutex);
  if (const CUresult result = check_device(device); result != CUDA_SUCCESS) return result;
  std::memset(uuid->bytes, 0xfa, sizeof(uuid->bytes));
  uuid->bytes[15] = static_cast<char>(physical(device));
  return CUDA_SUCCESS;
}

CUresult device_bus_id(char* text, int bytes, CUdevice device) {
  const Lock lock(machine().mutex);
  if (const CUresult result = check_device(device); result != CUDA_SUCCESS) return result;
  if (bytes < 13) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(text, static_cast<std::size_t>(bytes), "0000:%02X:00.0", 0x10 + physical(device));
  return CUDA_SUCCESS;
}

CUresult device_total_memory(std::size_t* bytes, CUdevice device) {
  const Lock lock(machine().mutex);
  if (const CUresult result = check_device(device); result != CUDA_SUCCESS) return result;
  *bytes = settings().memory_bytes;
  return CUDA_SUCCESS;
}

int value_of(CUdevice_attribute attribute, CUdevice device) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return 132;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return 9;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return 0;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return 1024;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      return 2048;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      return 50 << 20;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      return 3;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      return 0x10 + physical(device);
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
      return 1;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
      return settings().file_handles ? 1 : 0;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
      return settings().wide_memops ? 1 : 0;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR:
      return settings().stream_memops ? 1 : 0;
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS:  // 1: by the host
      return settings().dma_buf ? 1 : 0;
    default:
      return 0;
  }
}

CUresult device_attribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  const Lock lock(machine().mutex);
  if (const CUresult result = check_device(device); result != CUDA_SUCCESS) return result;
  *value = value_of(attribute, device);
  return CUDA_SUCCESS;
}

// What a network device wrote is there at once: only that it is asked for can be told.
CUresult flush_network_writes(CUflushGPUDirectRDMAWritesTarget target,
                              CUflushGPUDirectRDMAWritesScope scope) {
  const Lock lock(machine().mutex);
  if (const CUresult result = check_initialised(); result != CUDA_SUCCESS) return result;
  const bool known = target == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX &&
                     (scope == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER ||
                      scope == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES);
  if (!known) return CUDA_ERROR_INVALID_VALUE;
  return settings().dma_buf ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

std::vector<Entry> device_entries() {
  return {entry<&error_name>("cuGetErrorName", 6000),
          entry<&error_words>("cuGetErrorString", 6000),
          entry<&device_count>("cuDeviceGetCount", 2000),
          entry<&device_get>("cuDeviceGet", 2000),
          entry<&device_name>("cuDeviceGetName", 2000),
          entry<&device_uuid>("cuDeviceGetUuid", 9020),
          entry<&device_bus_id>("cuDeviceGetPCIBusId", 4010),
          entry<&device_total_memory>("cuDeviceTotalMem", 3020),
          entry<&device_attribute>("cuDeviceGetAttribute", 2000),
          entry<&flush_network_writes>("cuFlushGPUDirectRDMAWrites", 11030)};
}

}  // namespace fake_cuda
