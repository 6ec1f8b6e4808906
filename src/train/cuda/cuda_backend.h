// Training on one GPU: the backend of its memory, and page-locked host memory beside it.
//
// Nothing of CUDA is linked: the driver and cuBLAS are loaded by these calls. In a build without
// the CUDA toolkit they throw, and say so.
#pragma once

#include <cstddef>
#include <memory>

#include "train/model/backend.h"

namespace unisono::train {

/// `device` counts the devices that CUDA_VISIBLE_DEVICES leaves. Backends of one device share
/// nothing but its primary context: ranks that are threads may each have one.
///
/// std::runtime_error, "device 1: ...", with the remedy: no driver, UNISONO_CUDA=off, no such
/// device, no cuBLAS, or a failure of the device.
std::shared_ptr<Backend> make_cuda_backend(int device);

/// Host memory that devices copy from and to without the driver's own staging: for batches.
/// Locking pages takes milliseconds, so blocks should be used again. Any thread.
class PageLockedMemory {
 public:
  virtual ~PageLockedMemory() = default;
  /// At least 64-byte aligned. std::runtime_error names the device and the bytes.
  virtual void* take(std::size_t bytes) = 0;
  /// No copy uses the block any more.
  virtual void give(void* block) noexcept = 0;
};

/// Of one device's driver; usable by all its devices. Throws as make_cuda_backend() does.
std::shared_ptr<PageLockedMemory> make_page_locked_memory(int device);

/// The host's arithmetic on such memory, whose blocks it uses again; where no more can be locked,
/// on memory that is not.
std::shared_ptr<Backend> make_page_locked_backend(int device);

}  // namespace unisono::train
