// What all ranks of one process have of a device together: the kernels, loaded once, the streams of
// copies, and words of its memory. Streams share a few hardware queues, so a process has a pair of
// them however many ranks it has, and kernels are never loaded beside a stream that waits for a
// rank of this process.
//
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/result.h"
#include "compute/cuda/kernels.h"
#include "compute/cuda_api.h"

namespace unisono::device {

class DeviceShare {
 public:
  /// The same for all that name the context while any of them has it. The context is current, and
  /// outlives what is returned.
  static Result<std::shared_ptr<DeviceShare>> of(const std::shared_ptr<const cuda::CudaApi>& api,
                                                 CUdevice device, CUcontext context);
  ~DeviceShare();
  DeviceShare(const DeviceShare&) = delete;

  const cuda::Kernels& kernels() const { return *kernels_; }
  /// Of the highest priority, from the device to the host and back. Nothing in them waits.
  CUstream outward_stream() const { return outward_; }
  CUstream inward_stream() const { return inward_; }

  /// A word of device memory that is 0; see AbortWord.
  Result<CUdeviceptr> take_word();
  void give_back_word(CUdeviceptr word);
  /// Makes it 0 or not, and waits until it is, though not for long.
  Status fill_word(CUdeviceptr word, bool value);

 private:
  DeviceShare(std::shared_ptr<const cuda::CudaApi> api, CUcontext context)
      : api_(std::move(api)), context_(context) {}
  Status make(CUdevice device);
  Status add_words();

  std::shared_ptr<const cuda::CudaApi> api_;
  CUcontext context_;
  std::unique_ptr<cuda::Kernels> kernels_;
  CUstream outward_ = nullptr;
  CUstream inward_ = nullptr;
  std::mutex words_mutex_;
  std::vector<CUdeviceptr> word_blocks_, free_words_;
};

}  // namespace unisono::device
