// DeviceMemory itself: opening a device and putting its parts together. Each part is guarded here.
#include "cuda/memory/device_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "cuda/memory/device.h"
#include "cuda/memory/device_memory_state.h"

namespace unisono::cuda {
namespace {

std::string describe(const CudaApi& api, int ordinal, CUdevice device) {
  char model[128] = "unknown";
  char bus[32] = "unknown";
  // The name is for messages only: a device that does not say it still works.
  if (api.DeviceGetName(model, sizeof model, device) != CUDA_SUCCESS) std::strcpy(model, "unknown");
  if (api.DeviceGetPCIBusId(bus, sizeof bus, device) != CUDA_SUCCESS) std::strcpy(bus, "unknown");
  return fmt::format("device {} ({}, {})", ordinal, model, bus);
}

}  // namespace

DeviceMemory::DeviceMemory() : state_(std::make_unique<State>()) {}

Result<std::unique_ptr<DeviceMemory>> DeviceMemory::open(std::shared_ptr<const CudaApi> api,
                                                         int ordinal) {
  UNISONO_TRY(api->check(api->Init(0), "starting the CUDA driver"));
  int count = 0;
  UNISONO_TRY(api->check(api->DeviceGetCount(&count), "counting the CUDA devices"));
  if (ordinal < 0 || ordinal >= count) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("there is no CUDA device {}: this process sees {}; look at "
                              "CUDA_VISIBLE_DEVICES",
                              ordinal, count));
  }
  std::unique_ptr<DeviceMemory> memory(new DeviceMemory);
  Device& device = memory->state_->device;
  const std::string what = fmt::format("opening device {}", ordinal);
  UNISONO_TRY(api->check(api->DeviceGet(&device.handle, ordinal), what));
  CUuuid uuid;
  UNISONO_TRY(api->check(api->DeviceGetUuid(&uuid, device.handle), what));
  static_assert(sizeof uuid.bytes == sizeof device.uuid);
  std::memcpy(device.uuid.data(), uuid.bytes, sizeof uuid.bytes);
  device.ordinal = ordinal;
  device.name = describe(*api, ordinal, device.handle);
  device.windows_missing = Window::missing(*api, device.handle);
  UNISONO_TRY(api->check(api->DevicePrimaryCtxRetain(&device.context, device.handle), what));
  device.api = std::move(api);
  return memory;
}

DeviceMemory::~DeviceMemory() {
  Device& device = state_->device;
  if (device.api == nullptr) return;
  if (state_->process != process_identity()) {
    // In a forked child everything here is the parent's to put away.
    static_cast<void>(state_.release());
    return;
  }
  CleanupReport report(*device.api, "closing " + device.name);
  // First nobody can ask for a window any more, then what others own goes, then what this owns.
  state_->side.finish();
  state_->copy_stream.reset();
  state_->tickets.reset();
  state_->peers.close(report);
  state_->own.close(report);
  report.note(device.api->DevicePrimaryCtxRelease(device.handle), "releasing its context");
}

CUcontext DeviceMemory::context() const { return state_->device.context; }
CUdevice DeviceMemory::device() const { return state_->device.handle; }
int DeviceMemory::ordinal() const { return state_->device.ordinal; }
const std::array<std::uint8_t, 16>& DeviceMemory::uuid() const { return state_->device.uuid; }
const std::string& DeviceMemory::name() const { return state_->device.name; }

Result<void*> DeviceMemory::allocate(std::size_t bytes) {
  UNISONO_ASSIGN(OwnMemory::Allocation allocation, state_->own.make(bytes));
  const CUdeviceptr base = allocation.base;
  const std::lock_guard lock(state_->own_mutex);
  state_->own.add(std::move(allocation));
  return reinterpret_cast<void*>(base);
}

// The driver may wait for streams before it frees, and those for calls that want tickets meanwhile.
Status DeviceMemory::release(void* pointer) {
  const auto base = reinterpret_cast<CUdeviceptr>(pointer);
  std::unique_lock lock(state_->own_mutex);
  if (!state_->own.contains_base(base)) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("{} was not allocated on {} by this rank, or was released before", pointer,
                        state_->device.name)};
  }
  state_->tickets->drop(base);
  OwnMemory::Allocation allocation = state_->own.take(base);
  lock.unlock();
  return state_->own.free(std::move(allocation));
}

Result<PointerFacts> DeviceMemory::facts(const void* pointer, std::size_t bytes) const {
  if (pointer == nullptr) return PointerFacts{};
  UNISONO_ASSIGN(const PointerRecord record, check_buffer(state_->device, pointer, bytes));
  return record.facts;
}

Result<BufferTicket> DeviceMemory::ticket_of(const void* pointer, std::size_t bytes) {
  const std::lock_guard lock(state_->own_mutex);
  return state_->tickets->ticket_of(pointer, bytes);
}

Result<void*> DeviceMemory::open(const BufferTicket& ticket, const Peer& peer, std::size_t bytes) {
  const std::lock_guard lock(state_->peers_mutex);
  UNISONO_ASSIGN(const CUdeviceptr address, state_->peers.open(ticket, peer, bytes));
  return reinterpret_cast<void*>(address);
}

std::vector<std::array<std::uint8_t, 16>> DeviceMemory::out_of_reach() const {
  const std::lock_guard lock(state_->peers_mutex);
  return state_->peers.out_of_reach();
}

Result<std::shared_ptr<void>> DeviceMemory::keep(const BufferTicket& ticket) {
  if (ticket.process_key == state_->process.key) return std::shared_ptr<void>();
  return MappingCache::of_process().keep(state_->device, ticket, state_->side);
}

SideWork& DeviceMemory::side_work() { return state_->side; }

void DeviceMemory::forget(Rank world_rank) {
  const std::lock_guard lock(state_->peers_mutex);
  state_->peers.forget(world_rank);
}

}  // namespace unisono::cuda
