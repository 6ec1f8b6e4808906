// One part of a staged call, on its way through page-locked memory: copied out of the device, then
// the host's, then copied back.
//
// Thread rule: the engine's lock.
#pragma once

#include <cstddef>

#include "cuda/collectives/device_call.h"

namespace unisono {

class StagedPart {
 public:
  /// `call` and `shape` are the part's own, with the buffers of `whole`. Takes staging memory:
  /// false, and nothing taken, where there is none now.
  Result<bool> place(const DeviceCall& whole, const Call& call, const CallShape& shape);
  /// What the caller's stream does before the call is over where anything is copied.
  Status copy_out();
  /// `bytes` of the result.
  Status copy_in(std::size_t bytes);
  /// The copy that was enqueued last.
  Result<bool> is_copied() const { return device_->is_over(copied_); }

  const Call& call() const { return call_; }
  const CallShape& shape() const { return shape_; }
  const std::byte* host_input() const { return host_input_; }
  std::byte* host_output() const { return host_output_; }

  /// Waits for the copy, for as long as CudaCalls::may_await_release().
  void await_copy() const;
  /// The same, and gives everything back.
  void finish();
  /// Gives everything back; the copy is over.
  void release();

 private:
  Result<bool> place_buffers();
  bool holds_bound() const;
  Result<bool> take_staging(std::size_t bytes, device::StagingPool::Block* block);
  Status copy(void* to, const void* from, std::size_t bytes, bool on_host, CUstream stream);
  Status record(CUstream stream);
  bool is_copying() const;

  CudaCalls* calls_ = nullptr;
  device::Device* device_ = nullptr;
  bool reads_input_ = false;
  bool keeps_gaps_ = false;                // of the output, which are the caller's
  const DirectBuffers* direct_ = nullptr;  // nothing is copied: the host has the caller's buffers
  bool input_on_host_ = false;
  bool output_on_host_ = false;
  Call call_;
  CallShape shape_;
  device::StagingPool::Block input_, output_;  // one block for both where the call is in place
  std::byte* host_input_ = nullptr;
  std::byte* host_output_ = nullptr;
  CUevent copied_ = nullptr;
  CUstream unrecorded_ = nullptr;  // it has a copy that `copied_` is not behind
};

}  // namespace unisono
