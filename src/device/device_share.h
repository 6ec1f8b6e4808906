// What all ranks of one process have of a device together: the kernels, loaded once, and the
// streams of copies. Streams share a few hardware queues, so a process has a pair of them however
// many ranks it has, and kernels are never loaded beside a stream that waits for a rank of this
// process.
//
// Thread rule: any thread.
#pragma once

#include <memory>
#include <utility>

#include "base/result.h"
#include "compute/cuda/kernels.h"
#include "compute/cuda_api.h"

namespace unisono::device {

class DeviceShare {
 public:
  /// The same for all that name the device's primary context while any of them has it; keeps the
  /// context. It is current.
  static Result<std::shared_ptr<DeviceShare>> of(const std::shared_ptr<const cuda::CudaApi>& api,
                                                 CUdevice device, CUcontext context);
  ~DeviceShare();
  DeviceShare(const DeviceShare&) = delete;

  const cuda::Kernels& kernels() const { return *kernels_; }
  /// Of the highest priority, from the device to the host and back. Nothing in them waits.
  CUstream outward_stream() const { return outward_; }
  CUstream inward_stream() const { return inward_; }

  /// What waits in a stream of the user's may hold up copies: streams of one priority may share a
  /// hardware queue.
  bool may_hold_up_copies(CUstream stream) const;
  /// A stream for work that waits for other streams, the caller's to destroy: ahead of streams of
  /// no priority, and behind the copies. The context is current.
  Result<CUstream> make_waiting_stream() const;

 private:
  DeviceShare(std::shared_ptr<const cuda::CudaApi> api, CUdevice device, CUcontext context)
      : api_(std::move(api)), device_(device), context_(context) {}
  Status make();
  Result<CUstream> make_stream(int priority) const;

  std::shared_ptr<const cuda::CudaApi> api_;
  CUdevice device_;
  CUcontext context_;
  bool is_retained_ = false;
  std::unique_ptr<cuda::Kernels> kernels_;
  CUstream outward_ = nullptr;
  CUstream inward_ = nullptr;
  int copy_priority_ = 0;  // lower numbers are ahead
};

}  // namespace unisono::device
