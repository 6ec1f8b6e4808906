// A device call through page-locked host memory and the host's own collective:
//
//   (waiting for room ->) copying out (device to host) -> the host's operation
//                          -> copying in (host to device) -> over
//
// A stream of the caller's waits at a gate meanwhile and the caller does not. To its peers the rank
// is one that calls with host memory, so ranks with and without a GPU can be in one communicator.
//
// Thread rule: the engine's lock.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/device_call.h"
#include "engine/operation.h"

namespace unisono {

class StagedCall {
 public:
  explicit StagedCall(DeviceCall& call) : call_(call) {}

  /// Enqueues the copies out of the device, or leaves that to advance() while calls of before have
  /// the staging memory. Errors: kUnsupported in a captured stream, kOutOfResources.
  Status begin();
  Result<StageState> advance();
  /// Lets the caller's stream go on. The host's operation has ended.
  void fail();
  /// What talks to the peers right now, or null.
  Operation* host_side() const { return state_ == State::kOnHost ? host_ : nullptr; }
  /// Gives everything back; of a failed call too.
  void end();

 private:
  enum class State : std::uint8_t { kWaitingForRoom, kCopyingOut, kOnHost, kCopyingIn, kOver };

  Status start_copying();
  Status place();
  Status copy_out();
  Status close_gate();
  Status launch_host();
  Status copy_in();
  std::size_t result_bytes() const;
  bool keeps_gaps() const;

  DeviceCall& call_;
  State state_ = State::kOver;
  Operation* host_ = nullptr;
  device::Device::Staging input_, output_;  // one block for both where the call is in place
  std::byte* host_input_ = nullptr;
  std::byte* host_output_ = nullptr;
  CUevent copied_ = nullptr;
  device::Device::Gate gate_;
  bool gate_closed_ = false;  // a stream waits for it
};

}  // namespace unisono
