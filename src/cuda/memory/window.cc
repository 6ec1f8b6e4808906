#include "cuda/memory/window.h"

#include <fmt/format.h>

#include <utility>

#include "cuda/memory/device.h"

namespace unisono::cuda {
namespace {

constexpr CUmemAllocationHandleType kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

CUmemLocation location_of(CUdevice device) {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device;
  return location;
}

CUmemAllocationProp properties(CUdevice device, bool for_network_devices) {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.requestedHandleTypes = kDescriptor;
  wanted.location = location_of(device);
  wanted.allocFlags.gpuDirectRDMACapable = for_network_devices ? 1 : 0;
  return wanted;
}

CUmemAccessDesc access_of(CUdevice device) {
  CUmemAccessDesc access{};
  access.location = location_of(device);
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return access;
}

std::string device_address(CUdeviceptr address) { return fmt::format("{:#x}", address); }

/// Holds what cuMemRetainAllocationHandle gave.
class RetainedHandle {
 public:
  RetainedHandle(const CudaApi& api, CUdeviceptr address) : api_(api) {
    if (api.MemRetainAllocationHandle == nullptr || api.MemRelease == nullptr) return;
    held_ =
        api.MemRetainAllocationHandle(&handle_, reinterpret_cast<void*>(address)) == CUDA_SUCCESS;
  }
  ~RetainedHandle() {
    if (held_) api_.MemRelease(handle_);
  }
  RetainedHandle(const RetainedHandle&) = delete;
  RetainedHandle& operator=(const RetainedHandle&) = delete;
  explicit operator bool() const { return held_; }
  CUmemGenericAllocationHandle get() const { return handle_; }

 private:
  const CudaApi& api_;
  CUmemGenericAllocationHandle handle_ = 0;
  bool held_ = false;
};

Result<UniqueFd> export_handle(const CudaApi& api, CUmemGenericAllocationHandle handle,
                               const std::string& what) {
  int fd = -1;
  UNISONO_TRY(api.check(api.MemExportToShareableHandle(&fd, handle, kDescriptor, 0), what));
  return UniqueFd(fd);
}

}  // namespace

std::string Window::missing(const CudaApi& api, CUdevice device) {
  const std::pair<const char*, bool> functions[] = {
      {"cuMemAddressReserve", api.MemAddressReserve != nullptr},
      {"cuMemAddressFree", api.MemAddressFree != nullptr},
      {"cuMemCreate", api.MemCreate != nullptr},
      {"cuMemRelease", api.MemRelease != nullptr},
      {"cuMemMap", api.MemMap != nullptr},
      {"cuMemUnmap", api.MemUnmap != nullptr},
      {"cuMemSetAccess", api.MemSetAccess != nullptr},
      {"cuMemGetAllocationGranularity", api.MemGetAllocationGranularity != nullptr},
      {"cuMemExportToShareableHandle", api.MemExportToShareableHandle != nullptr},
      {"cuMemImportFromShareableHandle", api.MemImportFromShareableHandle != nullptr}};
  for (const auto& [name, found] : functions) {
    if (!found) return fmt::format("the driver has no {}", name);
  }
  if (attribute_of(api, device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 0) {
    return "the device has no virtual memory management";
  }
  if (attribute_of(api, device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) ==
      0) {
    return "the device cannot export memory as a descriptor";
  }
  return "";
}

Result<std::unique_ptr<Window>> Window::make(const CudaApi& api, CUdevice device,
                                             const std::string& name, std::size_t bytes) {
  std::unique_ptr<Window> window(new Window(api, name));
  UNISONO_TRY(window->create(device, bytes));
  UNISONO_TRY(window->map(device));
  return window;
}

Status Window::create(CUdevice device, std::size_t bytes) {
  const std::string what = fmt::format("allocating {} bytes on {}", bytes, name_);
  if (bytes > kAllocationBytesMax) {
    return {ErrorCode::kOutOfResources, what + ": no device has so much memory"};
  }
  const bool for_network_devices =
      attribute_of(api_, device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) != 0;
  CUmemAllocationProp wanted = properties(device, for_network_devices);
  std::size_t granularity = 0;
  UNISONO_TRY(api_.check(
      api_.MemGetAllocationGranularity(&granularity, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
      what));
  if (granularity == 0) return {ErrorCode::kSystem, what + ": the driver's granularity is 0"};
  bytes_ = (bytes + granularity - 1) / granularity * granularity;
  CUresult created = api_.MemCreate(&handle_, bytes_, &wanted, 0);
  if (created != CUDA_SUCCESS && created != CUDA_ERROR_OUT_OF_MEMORY && for_network_devices) {
    // Some devices claim the attribute where the system around them does not offer it.
    wanted = properties(device, false);
    created = api_.MemCreate(&handle_, bytes_, &wanted, 0);
  }
  has_handle_ = created == CUDA_SUCCESS;
  return api_.check(created, what);
}

Status Window::map(CUdevice device) {
  const std::string what = fmt::format("mapping {} bytes on {}", bytes_, name_);
  UNISONO_TRY(api_.check(api_.MemAddressReserve(&address_, bytes_, 0, 0, 0), what));
  UNISONO_TRY(api_.check(api_.MemMap(address_, bytes_, 0, handle_, 0), what));
  mapped_ = true;
  return open_range_to(api_, device, name_, address_, bytes_);
}

Result<std::unique_ptr<Window>> Window::import(const CudaApi& api, CUdevice device,
                                               const std::string& name, UniqueFd descriptor,
                                               std::size_t bytes) {
  CUmemAllocationProp like = properties(device, false);
  std::size_t granularity = 0;
  const std::string what = fmt::format("importing {} bytes for {}", bytes, name);
  UNISONO_TRY(api.check(
      api.MemGetAllocationGranularity(&granularity, &like, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
      what));
  if (bytes == 0 || bytes > kAllocationBytesMax || granularity == 0 || bytes % granularity != 0) {
    return Status(ErrorCode::kProtocol,
                  fmt::format("{}: windows come in multiples of {} bytes", what, granularity));
  }
  std::unique_ptr<Window> window(new Window(api, name));
  window->bytes_ = bytes;
  auto* const as_pointer = reinterpret_cast<void*>(static_cast<std::uintptr_t>(descriptor.get()));
  const CUresult imported =
      api.MemImportFromShareableHandle(&window->handle_, as_pointer, kDescriptor);
  // A descriptor kept open would keep the memory allocated after its owner freed it.
  descriptor.reset();
  UNISONO_TRY(api.check(imported, what));
  window->has_handle_ = true;
  UNISONO_TRY(window->map(device));
  // The mapping alone keeps the memory.
  window->has_handle_ = false;
  UNISONO_TRY(api.check(api.MemRelease(window->handle_), what));
  return window;
}

Window::~Window() {
  CleanupReport report(api_, "freeing a window of " + name_);
  close(report);
}

Result<UniqueFd> Window::export_descriptor() const {
  return export_handle(api_, handle_, fmt::format("exporting {} bytes of {}", bytes_, name_));
}

void Window::close(CleanupReport& report) {
  const std::string what =
      fmt::format("unmapping {} bytes at {} of {}", bytes_, device_address(address_), name_);
  if (std::exchange(mapped_, false)) report.note(api_.MemUnmap(address_, bytes_), what);
  if (address_ != 0) report.note(api_.MemAddressFree(address_, bytes_), what);
  address_ = 0;
  if (std::exchange(has_handle_, false)) report.note(api_.MemRelease(handle_), what);
}

Status open_range_to(const CudaApi& api, CUdevice device, const std::string& name,
                     CUdeviceptr address, std::size_t bytes) {
  const std::string what =
      fmt::format("giving {} access to {} bytes at {}", name, bytes, device_address(address));
  if (api.MemSetAccess == nullptr) {
    return {ErrorCode::kUnsupported, what + ": the driver has no cuMemSetAccess"};
  }
  const CUmemAccessDesc access = access_of(device);
  return api.check(api.MemSetAccess(address, bytes, &access, 1), what);
}

Status open_pool_to(const CudaApi& api, CUdevice device, const std::string& name,
                    CUmemoryPool pool) {
  const std::string what = fmt::format("giving {} access to a memory pool", name);
  if (api.MemPoolSetAccess == nullptr) {
    return {ErrorCode::kUnsupported, what + ": the driver has no cuMemPoolSetAccess"};
  }
  const CUmemAccessDesc access = access_of(device);
  return api.check(api.MemPoolSetAccess(pool, &access, 1), what);
}

bool has_handle(const CudaApi& api, CUdeviceptr address) {
  return static_cast<bool>(RetainedHandle(api, address));
}

Result<ForeignPiece> exportable_piece(const CudaApi& api, CUdeviceptr address) {
  const std::string what = fmt::format("the memory at {}", device_address(address));
  const RetainedHandle handle(api, address);
  if (!handle) return Status(ErrorCode::kUnsupported, what + " has no allocation handle");
  if (api.MemGetAllocationPropertiesFromHandle == nullptr ||
      api.MemExportToShareableHandle == nullptr) {
    return Status(ErrorCode::kUnsupported, "the driver cannot export allocation handles");
  }
  CUmemAllocationProp found{};
  UNISONO_TRY(api.check(api.MemGetAllocationPropertiesFromHandle(&found, handle.get()), what));
  if ((found.requestedHandleTypes & kDescriptor) == 0) {
    return Status(ErrorCode::kUnsupported, what + " was not created for export as a descriptor");
  }
  ForeignPiece piece;
  UNISONO_TRY(api.check(api.MemGetAddressRange(&piece.base, &piece.bytes, address), what));
  return piece;
}

Result<UniqueFd> export_piece(const CudaApi& api, CUdeviceptr base) {
  const std::string what = fmt::format("exporting the memory at {}", device_address(base));
  const RetainedHandle handle(api, base);
  if (!handle) return Status(ErrorCode::kInvalidArgument, what + ": it was freed");
  return export_handle(api, handle.get(), what);
}

}  // namespace unisono::cuda
