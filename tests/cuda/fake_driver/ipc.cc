// Legacy IPC: a handle names a whole allocation of another process, whose memfd is opened through
// /proc. The handle's bytes are nobody's business but this file's.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "tests/cuda/fake_driver/entry.h"
#include "tests/cuda/fake_driver/memory.h"
#include "tests/cuda/fake_driver/streams.h"

namespace fake_cuda {
namespace {

constexpr std::uint64_t kMagic = 0x656b61662d637069;

struct Ticket {
  std::uint64_t magic = kMagic;
  std::int32_t process = 0;
  std::int32_t fd = 0;
  std::uint64_t inode = 0;  // tells a descriptor that was used again for something else
  std::uint64_t base = 0;
  std::uint64_t bytes = 0;
  std::uint64_t buffer_id = 0;
  std::int32_t physical = 0;
};
static_assert(sizeof(Ticket) <= CU_IPC_HANDLE_SIZE);

std::uint64_t inode_of(int fd) {
  struct stat facts {};
  return fstat(fd, &facts) == 0 ? facts.st_ino : 0;
}

CUresult get_handle(CUipcMemHandle* handle, CUdeviceptr pointer) {
  const Lock lock(machine().mutex);
  CUctx_st* context = nullptr;
  if (const CUresult result = current_context(&context); result != CUDA_SUCCESS) return result;
  const Mapping* mapping = find_mapping(pointer);
  if (mapping == nullptr || mapping->kind != Mapping::Kind::kAllocation) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Ticket ticket;
  ticket.process = getpid();
  ticket.fd = mapping->block->fd;
  ticket.inode = inode_of(ticket.fd);
  ticket.base = mapping->base;
  ticket.bytes = mapping->bytes;
  ticket.buffer_id = mapping->buffer_id;
  ticket.physical = mapping->block->physical;
  std::memset(handle, 0, sizeof(*handle));
  std::memcpy(handle->reserved, &ticket, sizeof(ticket));
  return CUDA_SUCCESS;
}

BlockPointer open_block(const Ticket& ticket) {
  const std::string path =
      "/proc/" + std::to_string(ticket.process) + "/fd/" + std::to_string(ticket.fd);
  auto block = std::make_shared<Block>();
  block->imported = true;
  block->fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  block->bytes = ticket.bytes;
  block->physical = ticket.physical;
  if (block->fd < 0 || inode_of(block->fd) != ticket.inode) return nullptr;
  return block;
}

Mapping* find_import(const CUctx_st& context, const std::string& source) {
  for (auto& [base, mapping] : memory().mappings) {
    if (mapping.kind == Mapping::Kind::kImport && mapping.context == &context &&
        mapping.source == source) {
      return &mapping;
    }
  }
  return nullptr;
}

// What another allocation had opened, at a place that it had in the same process.
bool is_place_taken(const CUctx_st& context, const Ticket& ticket) {
  return std::ranges::any_of(memory().mappings, [&](const auto& entry) {
    const Mapping& mapping = entry.second;
    if (mapping.kind != Mapping::Kind::kImport || mapping.context != &context) return false;
    Ticket open;
    std::memcpy(static_cast<void*>(&open), mapping.source.data(), sizeof(open));
    return open.process == ticket.process && open.base < ticket.base + ticket.bytes &&
           ticket.base < open.base + open.bytes;
  });
}

CUresult check_ticket(const CUctx_st& context, const Ticket& ticket, unsigned flags) {
  if (ticket.magic != kMagic || ticket.bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (ticket.process == getpid()) {
    complain("a process opens its own IPC handle");
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  if (ticket.physical == context.physical) return CUDA_SUCCESS;
  if ((flags & CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == 0) return CUDA_ERROR_INVALID_VALUE;
  return settings().peers ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
}

CUresult open_handle(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned flags) {
  const Lock lock(machine().mutex);
  CUctx_st* context = nullptr;
  if (const CUresult result = current_context(&context); result != CUDA_SUCCESS) return result;
  Ticket ticket;
  std::memcpy(static_cast<void*>(&ticket), handle.reserved, sizeof(ticket));
  if (const CUresult result = check_ticket(*context, ticket, flags); result != CUDA_SUCCESS) {
    return result;
  }
  const std::string source(handle.reserved, sizeof(handle.reserved));
  if (Mapping* known = find_import(*context, source); known != nullptr) {
    ++known->opened;
    *pointer = known->base;
    return CUDA_SUCCESS;
  }
  if (is_place_taken(*context, ticket)) return CUDA_ERROR_ALREADY_MAPPED;
  BlockPointer block = open_block(ticket);
  if (block == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t base = take_addresses(context->physical, ticket.bytes);
  if (base == 0 || !map_alias(base, *block, 0, ticket.bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  Mapping mapping;
  mapping.kind = Mapping::Kind::kImport;
  mapping.base = base;
  mapping.bytes = ticket.bytes;
  mapping.block = std::move(block);
  mapping.context = context;
  mapping.buffer_id = ++memory().buffers;
  mapping.opened = 1;
  mapping.source = source;
  memory().mappings[base] = std::move(mapping);
  *pointer = base;
  return CUDA_SUCCESS;
}

// Waits for the device first, as the real one does.
CUresult close_handle(CUdeviceptr pointer) {
  Lock lock(machine().mutex);
  CUctx_st* context = nullptr;
  if (const CUresult result = current_context(&context); result != CUDA_SUCCESS) return result;
  if (const CUresult result = drain_streams_of(*context, lock); result != CUDA_SUCCESS) {
    return result;
  }
  const auto found = memory().mappings.find(pointer);
  if (found == memory().mappings.end() || found->second.kind != Mapping::Kind::kImport) {
    complain("cuIpcCloseMemHandle of " + hex(pointer) + ", which is not the base of an import");
    return CUDA_ERROR_INVALID_VALUE;
  }
  Mapping& mapping = found->second;
  if (mapping.context != context) {
    complain("cuIpcCloseMemHandle in another context than cuIpcOpenMemHandle");
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (--mapping.opened > 0) return CUDA_SUCCESS;
  check_unused(mapping.base, mapping.bytes, "cuIpcCloseMemHandle");
  unmap_alias(mapping.base, mapping.bytes);
  give_back_addresses(context->physical, mapping.base, mapping.bytes);
  memory().mappings.erase(found);
  return CUDA_SUCCESS;
}

}  // namespace

std::vector<Entry> ipc_entries() {
  return {entry<&get_handle>("cuIpcGetMemHandle", 4010),
          entry<&open_handle>("cuIpcOpenMemHandle", 11000),
          entry<&close_handle>("cuIpcCloseMemHandle", 4010)};
}

}  // namespace fake_cuda
