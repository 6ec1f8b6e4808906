// Device memory made of a driver handle and an address range of its own, so that it can be handed
// to other processes as a file descriptor: what this process allocates that way, and what it maps
// of others. Thread rule: one thread at a time per window; exporting from any.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "cuda/driver/cuda_api.h"
#include "cuda/memory/cleanup_report.h"

namespace unisono::cuda {

/// More than any device has; what a ticket may claim.
inline constexpr std::uint64_t kAllocationBytesMax = std::uint64_t{1} << 46;

class Window {
 public:
  /// Empty where the driver and the device have all that windows need; else what is missing.
  static std::string missing(const CudaApi& api, CUdevice device);

  /// At least `bytes`, which the device may read and write. `name` is the device's, for messages.
  static Result<std::unique_ptr<Window>> make(const CudaApi& api, CUdevice device,
                                              const std::string& name, std::size_t bytes);
  /// The memory behind another window's descriptor; kProtocol where `bytes` cannot be its size.
  static Result<std::unique_ptr<Window>> import(const CudaApi& api, CUdevice device,
                                                const std::string& name, UniqueFd descriptor,
                                                std::size_t bytes);
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  CUdeviceptr address() const { return address_; }
  std::size_t bytes() const { return bytes_; }
  /// Of a window made here.
  Result<UniqueFd> export_descriptor() const;
  /// Gives everything back; the memory itself lives until the last process has.
  void close(CleanupReport& report);

 private:
  Window(const CudaApi& api, const std::string& name) : api_(api), name_(name) {}
  Status create(CUdevice device, std::size_t bytes);
  Status map(CUdevice device);

  const CudaApi& api_;
  std::string name_;
  CUmemGenericAllocationHandle handle_ = 0;
  bool has_handle_ = false;
  CUdeviceptr address_ = 0;
  std::size_t bytes_ = 0;
  bool mapped_ = false;
};

/// Lets `device` read and write a mapped range of this process.
Status open_range_to(const CudaApi& api, CUdevice device, const std::string& name,
                     CUdeviceptr address, std::size_t bytes);

/// The same for all memory of a pool.
Status open_pool_to(const CudaApi& api, CUdevice device, const std::string& name,
                    CUmemoryPool pool);

/// The mapped piece of an address range around `address`, where it was mapped by others than
/// Window: kUnsupported where it has no handle or one that cannot be exported.
struct ForeignPiece {
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
};
Result<ForeignPiece> exportable_piece(const CudaApi& api, CUdeviceptr address);
/// A descriptor of that piece; the handle is held only meanwhile, so the owner's free frees.
Result<UniqueFd> export_piece(const CudaApi& api, CUdeviceptr base);
/// Whether a handle stands behind `address`.
bool has_handle(const CudaApi& api, CUdeviceptr address);

}  // namespace unisono::cuda
