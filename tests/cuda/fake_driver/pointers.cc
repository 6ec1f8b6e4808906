// What the driver says about a pointer.
#include <algorithm>
#include <cstring>

#include "tests/cuda/fake_driver/entry.h"
#include "tests/cuda/fake_driver/memory.h"

namespace fake_cuda {
namespace {

bool has_number(const Mapping& mapping) {
  return settings().buffer_ids &&
         (settings().window_ids || mapping.kind == Mapping::Kind::kAllocation);
}

struct Facts {
  const Mapping* mapping = nullptr;
  std::uint64_t host_base = 0;
  const HostRange* host = nullptr;
};

// The ordinal that this process gives to a physical device; -2 where it does not see it.
int ordinal_of(int physical) {
  const auto& devices = settings().devices;
  const auto found = std::find(devices.begin(), devices.end(), physical);
  return found == devices.end() ? CU_DEVICE_INVALID : static_cast<int>(found - devices.begin());
}

template <typename T>
CUresult put(void* data, T value) {
  std::memcpy(data, &value, sizeof(value));
  return CUDA_SUCCESS;
}

CUresult put_context(void* data, const Facts& facts) {
  CUcontext context = nullptr;
  if (facts.mapping != nullptr) context = facts.mapping->context;
  if (facts.host != nullptr) context = facts.host->context;
  return put(data, context);
}

CUresult put_ordinal(void* data, const Facts& facts) {
  int ordinal = CU_DEVICE_INVALID;
  if (facts.mapping != nullptr) ordinal = ordinal_of(facts.mapping->block->physical);
  if (facts.host != nullptr) ordinal = facts.host->context->ordinal;
  return put(data, ordinal);
}

CUresult put_attribute(void* data, CUpointer_attribute attribute, std::uint64_t pointer,
                       const Facts& facts) {
  const Mapping* mapping = facts.mapping;
  const bool known = mapping != nullptr || facts.host != nullptr;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return put_context(data, facts);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return put(data, mapping != nullptr      ? unsigned{CU_MEMORYTYPE_DEVICE}
                       : facts.host != nullptr ? unsigned{CU_MEMORYTYPE_HOST}
                                               : 0u);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return put(data, known ? CUdeviceptr{pointer} : CUdeviceptr{0});
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return put(data, facts.host != nullptr ? pointer : std::uint64_t{0});
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return put(
          data, mapping != nullptr && has_number(*mapping) ? mapping->buffer_id : std::uint64_t{0});
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return put(data, 0u);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return put_ordinal(data, facts);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return put(data, mapping != nullptr && mapping->kind == Mapping::Kind::kAllocation ? 1u : 0u);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return put(data, mapping != nullptr ? mapping->base : facts.host_base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return put(data, mapping != nullptr      ? mapping->bytes
                       : facts.host != nullptr ? facts.host->bytes
                                               : std::uint64_t{0});
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return put(data, known ? 1u : 0u);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return put(data, mapping != nullptr && mapping->block->exportable
                           ? std::uint64_t{CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR}
                           : std::uint64_t{0});
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return put(data, mapping != nullptr && settings().dma_buf ? 1u : 0u);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return put(data, known ? unsigned{CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE} : 0u);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return put(data, mapping != nullptr && mapping->kind == Mapping::Kind::kPool
                           ? &memory().pools[mapping->block->physical]
                           : CUmemoryPool{nullptr});
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return put(data, mapping != nullptr ? std::size_t{mapping->bytes} : std::size_t{0});
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

Facts facts_of(std::uint64_t pointer) {
  Facts facts;
  facts.mapping = find_mapping(pointer);
  if (facts.mapping != nullptr) return facts;
  if (const auto* range = find_host(pointer)) {
    facts.host_base = range->first;
    facts.host = &range->second;
  }
  return facts;
}

// A pointer that the driver does not know, freed ones too, is no error here: zeros.
CUresult get_attributes(unsigned count, CUpointer_attribute* attributes, void** data,
                        CUdeviceptr pointer) {
  const Lock lock(machine().mutex);
  if (const CUresult result = check_initialised(); result != CUDA_SUCCESS) return result;
  const Facts facts = facts_of(pointer);
  for (unsigned i = 0; i < count; ++i) {
    const CUresult result = put_attribute(data[i], attributes[i], pointer, facts);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult get_attribute(void* data, CUpointer_attribute attribute, CUdeviceptr pointer) {
  const Lock lock(machine().mutex);
  if (const CUresult result = check_initialised(); result != CUDA_SUCCESS) return result;
  const Facts facts = facts_of(pointer);
  if (facts.mapping == nullptr && facts.host == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return put_attribute(data, attribute, pointer, facts);
}

CUresult get_address_range(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr pointer) {
  const Lock lock(machine().mutex);
  CUctx_st* context = nullptr;
  if (const CUresult result = current_context(&context); result != CUDA_SUCCESS) return result;
  const Mapping* mapping = find_mapping(pointer);
  if (mapping == nullptr) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = mapping->base;
  if (bytes != nullptr) *bytes = mapping->bytes;
  return CUDA_SUCCESS;
}

}  // namespace

std::vector<Entry> pointer_entries() {
  return {entry<&get_attributes>("cuPointerGetAttributes", 7000),
          entry<&get_attribute>("cuPointerGetAttribute", 4000),
          entry<&get_address_range>("cuMemGetAddressRange", 3020)};
}

}  // namespace fake_cuda
