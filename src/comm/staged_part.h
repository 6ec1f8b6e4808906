// One part of a staged call, on its way through page-locked memory: copied out of the device, then
// the host's, then copied back.
//
// Thread rule: the engine's lock.
#pragma once

#include <cstddef>

#include "comm/device_call.h"

namespace unisono {

class CudaCalls;

class StagedPart {
 public:
  /// `call` and `shape` are the part's own, with the caller's buffers. Takes staging memory:
  /// kOutOfResources leaves nothing taken.
  Status place(device::Device& device, const Call& call, const CallShape& shape);
  /// Behind `ready`. `reads_input`: the rank has an input in this call.
  Status copy_out(CUevent ready, bool reads_input);
  /// `bytes` of the result; opens `gate`, where there is one, behind them.
  Status copy_in(std::size_t bytes, const device::Device::Gate* gate);
  /// The copy that was enqueued last.
  Result<bool> is_copied() const { return device_->is_over(copied_); }

  const Call& call() const { return call_; }
  const CallShape& shape() const { return shape_; }
  const std::byte* host_input() const { return host_input_; }
  std::byte* host_output() const { return host_output_; }

  /// Waits for the copy, and gives everything back.
  void finish();
  /// Gives everything back; the copy is over.
  void release();
  /// A copy that nobody waits for any more goes on with what it needs.
  void leave_to(CudaCalls& calls);

 private:
  Status place_buffers();
  Status record(CUstream stream);

  device::Device* device_ = nullptr;
  Call call_;
  CallShape shape_;
  device::Device::Staging input_, output_;  // one block for both where the call is in place
  std::byte* host_input_ = nullptr;
  std::byte* host_output_ = nullptr;
  CUevent copied_ = nullptr;
};

}  // namespace unisono
