// What all ranks of one process have of a device together. Kernels are loaded once, by the first
// rank, so never while a stream waits for a rank of this process. Copies have one pair of streams,
// however many ranks there are, because streams share a few hardware queues. Words of page-locked
// memory are kept until the last rank has left: before it frees any the driver waits for all
// streams.
//
// Thread rule: any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cuda/device/stream_order.h"
#include "cuda/device/waiting_streams.h"
#include "cuda/driver/cuda_api.h"
#include "cuda/kernels/kernels.h"

namespace unisono::device {

class DeviceShare {
 public:
  /// One object for all ranks that name this primary context, while any of them holds it. Retains
  /// the context, which is current.
  static Result<std::shared_ptr<DeviceShare>> of(const std::shared_ptr<const cuda::CudaApi>& api,
                                                 CUdevice device, CUcontext context);
  ~DeviceShare();
  DeviceShare(const DeviceShare&) = delete;

  const cuda::Kernels& kernels() const { return *kernels_; }
  /// From the device to the host and back. Nothing in them waits.
  CUstream outward_stream() const { return outward_; }
  CUstream inward_stream() const { return inward_; }

  /// The caller's to destroy. Of the highest priority, as all of the library's: others wait for
  /// what is in them. The context is current.
  Result<CUstream> make_stream() const;

  StreamOrder& stream_order() { return stream_order_; }
  WaitingStreams& waiting_streams() { return waiting_streams_; }

  /// Ranks of this process that use the device, of whatever jobs.
  void count_rank(int change) { ranks_.fetch_add(change, std::memory_order_acq_rel); }
  bool has_several_ranks() const { return ranks_.load(std::memory_order_acquire) > 1; }

  /// What the driver says of the device, whichever context is current: behind an error nothing of
  /// it goes on.
  CUresult fault() const;

  /// A word of host memory that kernels can read, 0. Where none is left the context is current.
  Result<std::uint32_t*> take_word();
  void give_back_word(std::uint32_t* word);

 private:
  DeviceShare(std::shared_ptr<const cuda::CudaApi> api, CUdevice device, CUcontext context);
  Status make();
  Status add_words();

  std::shared_ptr<const cuda::CudaApi> api_;
  CUdevice device_;
  CUcontext context_;
  bool is_retained_ = false;
  std::unique_ptr<cuda::Kernels> kernels_;
  CUstream outward_ = nullptr;
  CUstream inward_ = nullptr;
  StreamOrder stream_order_;
  WaitingStreams waiting_streams_;
  std::atomic<int> ranks_ = 0;
  std::mutex words_mutex_;
  std::vector<void*> word_pages_;
  std::vector<std::uint32_t*> free_words_;
};

}  // namespace unisono::device
