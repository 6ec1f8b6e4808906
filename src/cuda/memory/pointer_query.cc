#include "cuda/memory/pointer_query.h"

#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>

#include "cuda/memory/window.h"

namespace unisono::cuda {

Result<PointerRecord> query_pointer(const CudaApi& api, const void* pointer) {
  unsigned type = 0;
  int ordinal = -1;
  CUcontext context = nullptr;
  CUdeviceptr start = 0;
  std::size_t size = 0;
  unsigned long long id = 0;
  CUmemoryPool pool = nullptr;
  // The driver writes one byte for some of its booleans and four for others.
  unsigned managed = 0, ipc_capable = 0, mapped = 0;
  CUpointer_attribute attributes[] = {
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
      CU_POINTER_ATTRIBUTE_CONTEXT,     CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
      CU_POINTER_ATTRIBUTE_RANGE_SIZE,  CU_POINTER_ATTRIBUTE_BUFFER_ID,
      CU_POINTER_ATTRIBUTE_IS_MANAGED,  CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
      CU_POINTER_ATTRIBUTE_MAPPED,      CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
  void* data[] = {&type, &ordinal, &context,     &start,  &size,
                  &id,   &managed, &ipc_capable, &mapped, &pool};
  static_assert(std::size(attributes) == std::size(data));
  const CUresult result = api.PointerGetAttributes(std::size(attributes), attributes, data,
                                                   reinterpret_cast<CUdeviceptr>(pointer));
  if (result != CUDA_SUCCESS) {
    const Status why = api.check(result, fmt::format("asking what lies at {}", fmt::ptr(pointer)));
    return result == CUDA_ERROR_INVALID_VALUE ? Status(ErrorCode::kInvalidArgument, why.message())
                                              : why;
  }
  PointerRecord record;
  record.known = type != 0;
  record.managed = managed != 0;
  record.mapped = mapped != 0;
  record.ipc_capable = ipc_capable != 0;
  record.pool = pool;
  record.buffer_id = id;
  record.facts.device = type == CU_MEMORYTYPE_DEVICE || record.managed;
  if (record.facts.device) {
    record.facts.ordinal = ordinal;
    record.facts.base = start;
    record.facts.bytes = size;
    record.facts.context = context;
  }
  return record;
}

namespace {

/// Memory with handles is mapped piece by piece: a buffer may go on in the next one. `wanted` bytes
/// from the base; more is not looked for.
void extend_over_pieces(const Device& device, std::uint64_t wanted, PointerRecord* record) {
  PointerFacts* const facts = &record->facts;
  while (facts->bytes < wanted) {
    const CUdeviceptr end = facts->base + facts->bytes;
    const auto next = query_pointer(*device.api, reinterpret_cast<const void*>(end));
    const bool goes_on = next && next->mapped && next->facts.ordinal == facts->ordinal &&
                         next->facts.base == end && next->facts.bytes > 0 &&
                         has_handle(*device.api, facts->base) && has_handle(*device.api, end);
    if (!goes_on) return;
    facts->bytes += next->facts.bytes;
    record->buffer_id = 0;
  }
}

}  // namespace

Result<PointerRecord> check_buffer(const Device& device, const void* pointer, std::size_t bytes) {
  auto record = query_pointer(*device.api, pointer);
  const auto refused = [&](const std::string& why) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("{}, passed to a rank on {}, {}", buffer_text(pointer, bytes),
                              device.name, why));
  };
  if (!record) {
    // Whatever the driver says of a device that is broken is not the buffer's fault.
    const bool is_of_buffer = record.error().code() == ErrorCode::kInvalidArgument;
    return is_of_buffer ? refused("cannot be used: " + record.error().message()) : record.error();
  }
  if (!record->known) {
    // The driver says as little about freed device memory as about the host's own.
    if (is_readable_by_host(pointer)) return *record;
    return refused("are neither host memory nor live device memory; were they freed?");
  }
  if (!record->facts.device) return *record;
  if (!record->mapped) return refused("are device memory that was freed or unmapped");
  const std::uint64_t offset = reinterpret_cast<std::uint64_t>(pointer) - record->facts.base;
  extend_over_pieces(device, offset + bytes, &*record);
  if (offset <= record->facts.bytes && bytes <= record->facts.bytes - offset) return *record;
  return refused(fmt::format("go beyond their allocation of {} bytes at {:#x} on device {}",
                             record->facts.bytes, record->facts.base, record->facts.ordinal));
}

bool is_readable_by_host(const void* pointer) {
  char byte;
  const iovec here{&byte, 1};
  const iovec there{const_cast<void*>(pointer), 1};
  // A process may always read itself this way, unless a sandbox forbids the call.
  return ::process_vm_readv(::getpid(), &here, 1, &there, 1, 0) == 1 || errno != EFAULT;
}

std::string buffer_text(const void* pointer, std::size_t bytes) {
  return fmt::format("{} bytes at {}", bytes, fmt::ptr(pointer));
}

PointerFacts look_at(const CudaApi& api, const void* pointer) {
  if (pointer == nullptr) return {};
  const Result<PointerRecord> record = query_pointer(api, pointer);
  return record && record->mapped ? record->facts : PointerFacts{};
}

}  // namespace unisono::cuda
