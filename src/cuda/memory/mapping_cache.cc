#include "cuda/memory/mapping_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "cuda/driver/driver_section.h"
#include "cuda/memory/descriptor_server.h"

namespace unisono::cuda {
namespace {

/// For the owner's server to answer: it waits for nobody, so only a stopped process takes longer.
constexpr auto kOwnerPatience = std::chrono::seconds(5);

}  // namespace

MappingKey key_of(const Device& device, const BufferTicket& ticket) {
  MappingKey key{.api = device.api.get(),
                 .device = device.handle,
                 .process_key = ticket.process_key,
                 .base = ticket.base,
                 .allocation_id = ticket.allocation_id,
                 .allocation_bytes = ticket.allocation_bytes,
                 .kind = ticket.kind,
                 .ipc_handle = ticket.ipc_handle};
  if (ticket.kind == BufferTicket::Kind::kWindow) key.socket = ticket.socket;
  return key;
}

MappingCache& MappingCache::of_process() {
  static MappingCache* const cache = new MappingCache;
  return *cache;
}

Result<CUdeviceptr> MappingCache::acquire(const Device& device, const BufferTicket& ticket) {
  const MappingKey key = key_of(device, ticket);
  const std::lock_guard lock(mutex_);
  auto found = mappings_.find(key);
  if (found == mappings_.end()) {
    if (is_being_closed(key)) return CUdeviceptr{0};
    const DriverSection section(*device.api, device.context);
    UNISONO_TRY(section.status());
    auto opened = ticket.kind == BufferTicket::Kind::kWindow ? open_window(device, ticket)
                                                             : open_legacy(device, ticket);
    if (!opened) return opened.error();
    found = mappings_.emplace(key, std::move(*opened)).first;
  }
  ++found->second.holders;
  return found->second.base;
}

Result<MappingCache::Mapping> MappingCache::open_window(const Device& device,
                                                        const BufferTicket& ticket) {
  if (!device.windows_missing.empty()) {
    return Status(ErrorCode::kUnsupported, device.name + ": " + device.windows_missing);
  }
  UNISONO_ASSIGN(UniqueFd descriptor, request_descriptor(ticket.socket.data(), ticket.allocation_id,
                                                         Clock::now() + kOwnerPatience));
  Mapping mapping;
  UNISONO_ASSIGN(mapping.window, Window::import(*device.api, device.handle, device.name,
                                                std::move(descriptor), ticket.allocation_bytes));
  mapping.base = mapping.window->address();
  return mapping;
}

Result<MappingCache::Mapping> MappingCache::open_legacy(const Device& device,
                                                        const BufferTicket& ticket) {
  const CudaApi& api = *device.api;
  if (api.IpcOpenMemHandle == nullptr || api.IpcCloseMemHandle == nullptr) {
    return Status(ErrorCode::kUnsupported, "the driver has no cuIpcOpenMemHandle");
  }
  CUipcMemHandle handle;
  static_assert(sizeof handle == sizeof ticket.ipc_handle);
  std::memcpy(&handle, ticket.ipc_handle.data(), sizeof handle);
  Mapping mapping;
  const std::string what =
      fmt::format("opening an IPC handle of {} bytes on {}", ticket.allocation_bytes, device.name);
  UNISONO_TRY(api.check(
      api.IpcOpenMemHandle(&mapping.base, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), what));
  // A ticket that claims more than the handle opens would let kernels run past its end. Whether
  // every driver tells the length of what it opened is not known: one that does not is believed.
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  if (api.MemGetAddressRange(&base, &bytes, mapping.base) != CUDA_SUCCESS ||
      (base <= mapping.base && mapping.base - base + ticket.allocation_bytes <= bytes)) {
    return mapping;
  }
  api.IpcCloseMemHandle(mapping.base);
  return Status(ErrorCode::kProtocol, fmt::format("{}: it has only {} bytes", what, bytes));
}

// A driver may refuse to open two allocations at one place, and one allocation twice.
bool MappingCache::is_being_closed(const MappingKey& wanted) const {
  return std::any_of(closing_.begin(), closing_.end(), [&](const MappingKey& key) {
    return key.kind == wanted.kind && key.api == wanted.api && key.device == wanted.device &&
           key.process_key == wanted.process_key && overlap(key, wanted);
  });
}

std::shared_ptr<MappingCache::Mapping> MappingCache::let_go(const MappingKey& key) {
  const auto found = mappings_.find(key);
  UNISONO_ASSERT(found != mappings_.end(), "a mapping is released more often than acquired");
  if (--found->second.holders > 0) return nullptr;
  auto mapping = std::make_shared<Mapping>(std::move(found->second));
  mappings_.erase(found);
  return mapping;
}

void MappingCache::close(const Device& device, const Mapping& mapping, CleanupReport& report) {
  const DriverSection section(*device.api, device.context);
  report.note(section.status());
  if (mapping.window != nullptr) {
    mapping.window->close(report);
  } else {
    report.note(device.api->IpcCloseMemHandle(mapping.base),
                "closing an IPC handle on " + device.name);
  }
}

void MappingCache::release(const Device& device, const MappingKey& key, CleanupReport& report) {
  const std::lock_guard lock(mutex_);
  if (const auto mapping = let_go(key)) close(device, *mapping, report);
}

void MappingCache::release(const Device& device, const MappingKey& key, SideWork& side) {
  std::unique_lock lock(mutex_);
  const auto mapping = let_go(key);
  if (mapping == nullptr) return;
  const bool is_legacy = key.kind == BufferTicket::Kind::kLegacyIpc;
  if (is_legacy) closing_.insert(key);
  lock.unlock();
  const auto close_it = [this, device, key, mapping, is_legacy] {
    CleanupReport report(*device.api, "unmapping memory that a peer of " + device.name + " had");
    close(device, *mapping, report);
    const std::lock_guard guard(mutex_);
    if (is_legacy) closing_.erase(closing_.find(key));
  };
  side.run_once_possible(close_it);
}

Result<std::shared_ptr<void>> MappingCache::keep(const Device& device, const BufferTicket& ticket,
                                                 SideWork& side) {
  UNISONO_ASSIGN(const CUdeviceptr base, acquire(device, ticket));
  if (base == 0) return std::shared_ptr<void>();
  const auto release_it = [device, key = key_of(device, ticket), &side](void*) {
    of_process().release(device, key, side);
  };
  return std::shared_ptr<void>(reinterpret_cast<void*>(base), release_it);
}

}  // namespace unisono::cuda
