// Driver functions over device and host memory, and what pointers are.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "tests/cuda/fake_driver/capture.h"
#include "tests/cuda/fake_driver/entry.h"
#include "tests/cuda/fake_driver/memory.h"
#include "tests/cuda/fake_driver/streams.h"

namespace fake_cuda {
namespace {

// More than this of fresh memory is left to be zeros, because filling it takes long.
constexpr std::size_t kFilledBytesMax = std::size_t{16} << 20;

CUresult allocate(CUctx_st* context, Mapping::Kind kind, std::size_t bytes, CUdeviceptr* pointer) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  BlockPointer block = make_block(context->physical, bytes);
  if (block == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::uint64_t base = take_addresses(context->physical, bytes);
  if (base == 0 || !map_alias(base, *block, 0, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  // What fresh memory holds is nobody's business; zeros would hide that.
  std::memset(alias_of(base), 0xc5, std::min(bytes, kFilledBytesMax));
  Mapping mapping;
  mapping.kind = kind;
  mapping.base = base;
  mapping.bytes = bytes;
  mapping.block = std::move(block);
  mapping.context = context;
  mapping.buffer_id = ++memory().buffers;
  memory().mappings[base] = std::move(mapping);
  *pointer = base;
  return CUDA_SUCCESS;
}

CUresult mem_alloc(CUdeviceptr* pointer, std::size_t bytes) {
  const Lock lock(machine().mutex);
  CUctx_st* context = nullptr;
  if (const CUresult result = current_context(&context); result != CUDA_SUCCESS) return result;
  if (const CUresult result = refuse_while_capturing(); result != CUDA_SUCCESS) return result;
  return allocate(context, Mapping::Kind::kAllocation, bytes, pointer);
}

// From the device's pool. It is there at once, and not only for the stream.
CUresult mem_alloc_async(CUdeviceptr* pointer, std::size_t bytes, CUstream handle) {
  const Lock lock(machine().mutex);
  CUctx_st* context = nullptr;
  StreamPointer stream;
  if (const CUresult result = enter_stream(handle, &context, &stream); result != CUDA_SUCCESS) {
    return result;
  }
  return allocate(context, Mapping::Kind::kPool, bytes, pointer);
}

CUresult pool_set_access(CUmemoryPool pool, const CUmemAccessDesc* rights, std::size_t count) {
  const Lock lock(machine().mutex);
  for (std::size_t i = 0; i < count; ++i) {
    if (rights[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = check_device(rights[i].location.id);
    if (result != CUDA_SUCCESS) return result;
    if (!settings().peers) return CUDA_ERROR_INVALID_DEVICE;
    const int physical = settings().devices[static_cast<std::size_t>(rights[i].location.id)];
    pool->peers.erase(physical);
    if (rights[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) pool->peers.insert(physical);
  }
  return CUDA_SUCCESS;
}

// Waits for the device first, as the real one does: whoever frees while a stream is blocked on
// something that comes later hangs here too.
CUresult mem_free(CUdeviceptr pointer) {
  Lock lock(machine().mutex);
  if (pointer == 0) return CUDA_SUCCESS;
  CUctx_st* context = nullptr;
  if (const CUresult result = current_context(&context); result != CUDA_SUCCESS) return result;
  if (const CUresult result = refuse_while_capturing(); result != CUDA_SUCCESS) return result;
  const auto is_allocation = [&] {
    const auto found = memory().mappings.find(pointer);
    return found != memory().mappings.end() && (found->second.kind == Mapping::Kind::kAllocation ||
                                                found->second.kind == Mapping::Kind::kPool);
  };
  if (!is_allocation()) {
    complain("cuMemFree of " + hex(pointer) + ", which is no allocation (freed twice?)");
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const CUresult result = drain_streams_of(*context, lock); result != CUDA_SUCCESS) {
    return result;
  }
  if (!is_allocation()) return CUDA_ERROR_INVALID_VALUE;
  const Mapping& mapping = memory().mappings.at(pointer);
  check_unused(mapping.base, mapping.bytes, "cuMemFree");
  unmap_alias(mapping.base, mapping.bytes);
  give_back_addresses(mapping.block->physical, mapping.base, mapping.bytes);
  memory().mappings.erase(pointer);
  return CUDA_SUCCESS;
}

CUresult mem_get_info(std::size_t* free_bytes, std::size_t* total_bytes) {
  const Lock lock(machine().mutex);
  CUctx_st* context = nullptr;
  if (const CUresult result = current_context(&context); result != CUDA_SUCCESS) return result;
  *total_bytes = settings().memory_bytes;
  *free_bytes = settings().memory_bytes - memory().used_bytes[context->physical];
  return CUDA_SUCCESS;
}

CUresult host_alloc(void** pointer, std::size_t bytes, unsigned flags) {
  Lock lock(machine().mutex);
  CUctx_st* context = nullptr;
  if (const CUresult result = current_context(&context); result != CUDA_SUCCESS) return result;
  if (const CUresult result = refuse_while_capturing(); result != CUDA_SUCCESS) return result;
  if (bytes == 0 || (flags & ~7u) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (settings().page_locking_waits) {
    const CUresult result = drain_streams_of(*context, lock);
    if (result != CUDA_SUCCESS) return result;
  }
  void* range = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (range == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  memory().host[reinterpret_cast<std::uint64_t>(range)] = {bytes, true, context};
  *pointer = range;
  return CUDA_SUCCESS;
}

CUresult host_free(void* pointer) {
  Lock lock(machine().mutex);
  CUctx_st* context = nullptr;
  if (const CUresult result = current_context(&context); result != CUDA_SUCCESS) return result;
  const auto address = reinterpret_cast<std::uint64_t>(pointer);
  const auto found = memory().host.find(address);
  if (found == memory().host.end() || !found->second.allocated) {
    complain("cuMemFreeHost of " + hex(address) + ", which cuMemHostAlloc did not give");
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::uint64_t bytes = found->second.bytes;
  if (const CUresult result = drain_streams_of(*context, lock); result != CUDA_SUCCESS) {
    return result;
  }
  check_unused(address, bytes, "cuMemFreeHost");
  memory().host.erase(address);
  munmap(pointer, bytes);
  return CUDA_SUCCESS;
}

CUresult host_register(void* pointer, std::size_t bytes, unsigned) {
  Lock lock(machine().mutex);
  CUctx_st* context = nullptr;
  if (const CUresult result = current_context(&context); result != CUDA_SUCCESS) return result;
  const auto address = reinterpret_cast<std::uint64_t>(pointer);
  if (pointer == nullptr || bytes == 0 || is_device_address(address)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (settings().page_locking_waits) {
    const CUresult result = drain_streams_of(*context, lock);
    if (result != CUDA_SUCCESS) return result;
  }
  const auto after = memory().host.lower_bound(address + bytes);
  if (after != memory().host.begin() &&
      std::prev(after)->first + std::prev(after)->second.bytes > address) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  memory().host[address] = {bytes, false, context};
  return CUDA_SUCCESS;
}

// As mem_free: waits for the device first.
CUresult host_unregister(void* pointer) {
  Lock lock(machine().mutex);
  CUctx_st* context = nullptr;
  if (const CUresult result = current_context(&context); result != CUDA_SUCCESS) return result;
  const auto address = reinterpret_cast<std::uint64_t>(pointer);
  const auto is_registered = [&] {
    const auto found = memory().host.find(address);
    return found != memory().host.end() && !found->second.allocated;
  };
  if (!is_registered()) {
    complain("cuMemHostUnregister of " + hex(address) + ", which is not registered");
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  }
  if (const CUresult result = drain_streams_of(*context, lock); result != CUDA_SUCCESS) {
    return result;
  }
  if (!is_registered()) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  check_unused(address, memory().host.at(address).bytes, "cuMemHostUnregister");
  memory().host.erase(address);
  return CUDA_SUCCESS;
}

CUresult host_device_pointer(CUdeviceptr* device, void* pointer, unsigned flags) {
  const Lock lock(machine().mutex);
  CUctx_st* context = nullptr;
  if (const CUresult result = current_context(&context); result != CUDA_SUCCESS) return result;
  if (flags != 0 || find_host(reinterpret_cast<std::uint64_t>(pointer)) == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *device = reinterpret_cast<std::uint64_t>(pointer);
  return CUDA_SUCCESS;
}

}  // namespace

void end_memory_of(CUctx_st& context) {
  auto& mappings = memory().mappings;
  for (auto at = mappings.begin(); at != mappings.end();) {
    const Mapping& mapping = at->second;
    if (mapping.context != &context) {
      ++at;
      continue;
    }
    complain("memory at " + hex(mapping.base) + " outlives its context");
    unmap_alias(mapping.base, mapping.bytes);
    at = mappings.erase(at);
  }
  auto& host = memory().host;
  for (auto at = host.begin(); at != host.end();) {
    if (at->second.context != &context) {
      ++at;
      continue;
    }
    complain("host memory at " + hex(at->first) + " outlives its context");
    if (at->second.allocated) munmap(reinterpret_cast<void*>(at->first), at->second.bytes);
    at = host.erase(at);
  }
}

std::vector<Entry> memory_entries() {
  return {entry<&mem_alloc>("cuMemAlloc", 3020),
          entry<&mem_alloc_async>("cuMemAllocAsync", 11020),
          entry<&pool_set_access>("cuMemPoolSetAccess", 11020),
          entry<&mem_free>("cuMemFree", 3020),
          entry<&mem_get_info>("cuMemGetInfo", 3020),
          entry<&host_alloc>("cuMemHostAlloc", 2020),
          entry<&host_free>("cuMemFreeHost", 2000),
          entry<&host_register>("cuMemHostRegister", 6050),
          entry<&host_unregister>("cuMemHostUnregister", 4000),
          entry<&host_device_pointer>("cuMemHostGetDevicePointer", 3020)};
}

}  // namespace fake_cuda
