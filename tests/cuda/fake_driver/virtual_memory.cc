// Virtual memory management: handles of physical memory, reserved addresses, mappings, rights, and
// export as a file descriptor (which is the memfd itself).
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "tests/cuda/fake_driver/entry.h"
#include "tests/cuda/fake_driver/memory.h"

namespace fake_cuda {
namespace {

struct Handle {
  BlockPointer block;
  int references = 1;
};

struct Handles {
  std::map<CUmemGenericAllocationHandle, Handle> live;
  CUmemGenericAllocationHandle made = 0x1000;
};

Handles& handles() {
  static Handles* const value = new Handles;
  return *value;
}

bool is_multiple(std::uint64_t value) { return value % kGranularity == 0; }

bool is_file_type(CUmemAllocationHandleType type) {
  return type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
}

CUmemGenericAllocationHandle add_handle(BlockPointer block) {
  const CUmemGenericAllocationHandle handle = ++handles().made;
  handles().live[handle] = {std::move(block), 1};
  return handle;
}

CUresult address_reserve(CUdeviceptr* pointer, std::size_t bytes, std::size_t alignment,
                         CUdeviceptr, unsigned long long flags) {
  const Lock lock(machine().mutex);
  if (const CUresult result = check_initialised(); result != CUDA_SUCCESS) return result;
  if (bytes == 0 || !is_multiple(bytes) || flags != 0 || alignment > kGranularity) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::uint64_t base = take_addresses(kDevicesMax, bytes);
  if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  memory().reservations[base] = bytes;
  *pointer = base;
  return CUDA_SUCCESS;
}

CUresult address_free(CUdeviceptr pointer, std::size_t bytes) {
  const Lock lock(machine().mutex);
  const auto found = memory().reservations.find(pointer);
  if (found == memory().reservations.end() || found->second != bytes) {
    complain("cuMemAddressFree of " + hex(pointer) + ", which is no reservation of this size");
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto inside = memory().mappings.lower_bound(pointer);
  if (inside != memory().mappings.end() && inside->first < pointer + bytes) {
    complain("cuMemAddressFree of " + hex(pointer) + ", where memory is mapped");
    return CUDA_ERROR_INVALID_VALUE;
  }
  memory().reservations.erase(found);
  give_back_addresses(kDevicesMax, pointer, bytes);
  return CUDA_SUCCESS;
}

CUresult mem_create(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                    const CUmemAllocationProp* wanted, unsigned long long flags) {
  const Lock lock(machine().mutex);
  if (const CUresult result = check_initialised(); result != CUDA_SUCCESS) return result;
  if (bytes == 0 || !is_multiple(bytes) || flags != 0 ||
      wanted->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      wanted->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const CUresult result = check_device(wanted->location.id); result != CUDA_SUCCESS) {
    return result;
  }
  const bool exports = is_file_type(wanted->requestedHandleTypes);
  if ((wanted->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE && !exports) ||
      (exports && !settings().file_handles)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  BlockPointer block =
      make_block(settings().devices[static_cast<std::size_t>(wanted->location.id)], bytes);
  if (block == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  block->exportable = exports;
  *handle = add_handle(std::move(block));
  return CUDA_SUCCESS;
}

CUresult mem_release(CUmemGenericAllocationHandle handle) {
  const Lock lock(machine().mutex);
  const auto found = handles().live.find(handle);
  if (found == handles().live.end()) {
    complain("cuMemRelease of a handle that is not held");
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (--found->second.references == 0) handles().live.erase(found);
  return CUDA_SUCCESS;
}

bool is_reserved(std::uint64_t base, std::uint64_t bytes) {
  const auto& reservations = memory().reservations;
  const auto after = reservations.upper_bound(base);
  if (after == reservations.begin()) return false;
  const auto& [start, size] = *std::prev(after);
  return base >= start && base + bytes <= start + size;
}

CUresult mem_map(CUdeviceptr pointer, std::size_t bytes, std::size_t offset,
                 CUmemGenericAllocationHandle handle, unsigned long long flags) {
  const Lock lock(machine().mutex);
  const auto found = handles().live.find(handle);
  if (found == handles().live.end() || offset != 0 || flags != 0 || bytes == 0 ||
      !is_multiple(bytes) || !is_multiple(pointer) || bytes > found->second.block->bytes ||
      !is_reserved(pointer, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto inside = memory().mappings.lower_bound(pointer);
  const bool taken = find_mapping(pointer) != nullptr ||
                     (inside != memory().mappings.end() && inside->first < pointer + bytes);
  if (taken) return CUDA_ERROR_INVALID_VALUE;
  if (!map_alias(pointer, *found->second.block, 0, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  Mapping mapping;
  mapping.kind = Mapping::Kind::kVirtual;
  mapping.base = pointer;
  mapping.bytes = bytes;
  mapping.block = found->second.block;
  mapping.buffer_id = ++memory().buffers;
  memory().mappings[pointer] = std::move(mapping);
  return CUDA_SUCCESS;
}

// The bases of the mappings that make up the range exactly; empty where it cuts one or has a hole.
std::vector<std::uint64_t> mappings_of(std::uint64_t base, std::uint64_t bytes) {
  std::vector<std::uint64_t> list;
  std::uint64_t at = base;
  while (at < base + bytes) {
    const auto found = memory().mappings.find(at);
    if (found == memory().mappings.end() || found->second.kind != Mapping::Kind::kVirtual)
      return {};
    list.push_back(at);
    at += found->second.bytes;
  }
  return at == base + bytes ? list : std::vector<std::uint64_t>{};
}

CUresult mem_unmap(CUdeviceptr pointer, std::size_t bytes) {
  const Lock lock(machine().mutex);
  const std::vector<std::uint64_t> parts = mappings_of(pointer, bytes);
  if (parts.empty()) {
    complain("cuMemUnmap of " + hex(pointer) + ", where no mapping of this size is");
    return CUDA_ERROR_INVALID_VALUE;
  }
  check_unused(pointer, bytes, "cuMemUnmap");
  for (const std::uint64_t base : parts) {
    unmap_alias(base, memory().mappings.at(base).bytes);
    memory().mappings.erase(base);
  }
  return CUDA_SUCCESS;
}

CUresult give_access(Mapping& mapping, const CUmemAccessDesc& right) {
  if (right.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_device(right.location.id); result != CUDA_SUCCESS) {
    return result;
  }
  const int physical = settings().devices[static_cast<std::size_t>(right.location.id)];
  if (physical != mapping.block->physical && !settings().peers) return CUDA_ERROR_INVALID_DEVICE;
  mapping.readers.erase(physical);
  mapping.writers.erase(physical);
  if (right.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) mapping.readers.insert(physical);
  if (right.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) mapping.writers.insert(physical);
  return CUDA_SUCCESS;
}

CUresult set_access(CUdeviceptr pointer, std::size_t bytes, const CUmemAccessDesc* rights,
                    std::size_t count) {
  const Lock lock(machine().mutex);
  const std::vector<std::uint64_t> parts = mappings_of(pointer, bytes);
  if (parts.empty() || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (const std::uint64_t base : parts) {
    for (std::size_t i = 0; i < count; ++i) {
      const CUresult result = give_access(memory().mappings.at(base), rights[i]);
      if (result != CUDA_SUCCESS) return result;
    }
  }
  return CUDA_SUCCESS;
}

CUresult granularity(std::size_t* bytes, const CUmemAllocationProp* wanted,
                     CUmemAllocationGranularity_flags) {
  const Lock lock(machine().mutex);
  if (const CUresult result = check_device(wanted->location.id); result != CUDA_SUCCESS) {
    return result;
  }
  *bytes = kGranularity;
  return CUDA_SUCCESS;
}

CUresult export_handle(void* out, CUmemGenericAllocationHandle handle,
                       CUmemAllocationHandleType type, unsigned long long flags) {
  const Lock lock(machine().mutex);
  const auto found = handles().live.find(handle);
  if (found == handles().live.end() || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!is_file_type(type) || !found->second.block->exportable) return CUDA_ERROR_INVALID_VALUE;
  const int copy = dup(found->second.block->fd);
  if (copy < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  std::memcpy(out, &copy, sizeof(copy));
  return CUDA_SUCCESS;
}

// The device whose memory the descriptor is, from the name of the memfd; -1 for anything else.
int device_of(int fd) {
  char name[PATH_MAX] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  if (readlink(link.c_str(), name, sizeof(name) - 1) < 0) return -1;
  constexpr char kPrefix[] = "/memfd:fake_cuda_device_";
  if (std::strncmp(name, kPrefix, sizeof(kPrefix) - 1) != 0) return -1;
  return std::atoi(name + sizeof(kPrefix) - 1);
}

// The descriptor stays the caller's, who has to close it.
CUresult import_handle(CUmemGenericAllocationHandle* handle, void* os_handle,
                       CUmemAllocationHandleType type) {
  const Lock lock(machine().mutex);
  if (const CUresult result = check_initialised(); result != CUDA_SUCCESS) return result;
  if (!is_file_type(type)) return CUDA_ERROR_NOT_SUPPORTED;
  const int fd = static_cast<int>(reinterpret_cast<std::intptr_t>(os_handle));
  struct stat facts {};
  const int device = fstat(fd, &facts) == 0 ? device_of(fd) : -1;
  if (device < 0) return CUDA_ERROR_INVALID_VALUE;
  auto block = std::make_shared<Block>();
  block->imported = true;
  block->exportable = true;
  block->physical = device;
  block->bytes = static_cast<std::uint64_t>(facts.st_size);
  block->fd = dup(fd);
  if (block->fd < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = add_handle(std::move(block));
  return CUDA_SUCCESS;
}

CUresult retain_handle(CUmemGenericAllocationHandle* handle, void* pointer) {
  const Lock lock(machine().mutex);
  const Mapping* mapping = find_mapping(reinterpret_cast<std::uint64_t>(pointer));
  if (mapping == nullptr || mapping->kind != Mapping::Kind::kVirtual) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (auto& [known, held] : handles().live) {
    if (held.block != mapping->block) continue;
    ++held.references;
    *handle = known;
    return CUDA_SUCCESS;
  }
  *handle = add_handle(mapping->block);
  return CUDA_SUCCESS;
}

CUresult properties(CUmemAllocationProp* out, CUmemGenericAllocationHandle handle) {
  const Lock lock(machine().mutex);
  const auto found = handles().live.find(handle);
  if (found == handles().live.end()) return CUDA_ERROR_INVALID_VALUE;
  const Block& block = *found->second.block;
  const auto& devices = settings().devices;
  const auto visible = std::find(devices.begin(), devices.end(), block.physical);
  *out = {};
  out->type = CU_MEM_ALLOCATION_TYPE_PINNED;
  out->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  out->location.id = visible == devices.end() ? -1 : static_cast<int>(visible - devices.begin());
  out->requestedHandleTypes =
      block.exportable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
  return CUDA_SUCCESS;
}

CUresult handle_for_range(void* out, CUdeviceptr pointer, std::size_t bytes,
                          CUmemRangeHandleType type, unsigned long long) {
  const Lock lock(machine().mutex);
  if (!settings().dma_buf) return CUDA_ERROR_NOT_SUPPORTED;
  const Mapping* mapping = find_mapping(pointer);
  const long page = sysconf(_SC_PAGESIZE);
  if (type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || mapping == nullptr ||
      pointer % static_cast<std::uint64_t>(page) != 0 ||
      bytes % static_cast<std::uint64_t>(page) != 0 ||
      pointer + bytes > mapping->base + mapping->block->bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int copy = dup(mapping->block->fd);
  std::memcpy(out, &copy, sizeof(copy));
  return copy < 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

}  // namespace

std::uint64_t count_handles() { return handles().live.size(); }

std::uint64_t report_handle_leaks() {
  for (const auto& [handle, held] : handles().live) {
    complain("leak: an allocation handle of " + std::to_string(held.block->bytes) +
             " bytes, held " + std::to_string(held.references) + " times");
  }
  return handles().live.size();
}

std::vector<Entry> virtual_memory_entries() {
  return {entry<&address_reserve>("cuMemAddressReserve", 10020),
          entry<&address_free>("cuMemAddressFree", 10020),
          entry<&mem_create>("cuMemCreate", 10020),
          entry<&mem_release>("cuMemRelease", 10020),
          entry<&mem_map>("cuMemMap", 10020),
          entry<&mem_unmap>("cuMemUnmap", 10020),
          entry<&set_access>("cuMemSetAccess", 10020),
          entry<&granularity>("cuMemGetAllocationGranularity", 10020),
          entry<&export_handle>("cuMemExportToShareableHandle", 10020),
          entry<&import_handle>("cuMemImportFromShareableHandle", 10020),
          entry<&retain_handle>("cuMemRetainAllocationHandle", 11000),
          entry<&properties>("cuMemGetAllocationPropertiesFromHandle", 10020),
          entry<&handle_for_range>("cuMemGetHandleForAddressRange", 11070)};
}

}  // namespace fake_cuda
