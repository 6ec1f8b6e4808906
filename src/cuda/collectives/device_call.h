// One call on device buffers, as its stages share it: what was asked for, and where in the driver's
// streams it stands. Made by DeviceOperation.
//
// Thread rule: the engine's lock.
#pragma once

#include <cstdint>

#include "backend/call_check.h"
#include "cuda/collectives/call_gate.h"
#include "cuda/collectives/direct_buffers.h"
#include "cuda/collectives/host_part.h"
#include "cuda/device/device.h"
#include "unisono/communicator.h"

namespace unisono {

class CudaCalls;

struct DeviceCall {
  DeviceCall(CudaCalls& of, StartedCall& whole, HostBackends& backends)
      : calls(&of), started(&whole), host(backends) {}

  /// What is true of the input is so of the output.
  bool has_one_buffer() const {
    return call.out == call.in && shape.output_bytes == shape.input_bytes;
  }

  CudaCalls* calls;
  StartedCall* started;  ///< as the communicator has it
  device::Device* device = nullptr;
  Call call;
  CallShape shape;
  CUstream stream = nullptr;
  bool has_stream = false;     ///< the caller named it, and goes on before the work is over
  bool input_on_host = false;  ///< the caller's buffers are host memory all the same
  bool output_on_host = false;
  HostPart host;
  DirectBuffers direct;
  /// Instead of a graph's number: an error has invalidated the capture, which has no graph.
  static constexpr std::uint64_t kInvalidCapture = ~std::uint64_t{0};
  std::uint64_t capture = 0;       ///< the graph that the stream is being captured into; 0: none
  CallGate gate;                   ///< of hierarchical and staged calls
  CUevent ready = nullptr;         ///< recorded on the stream when the call was made; null: not yet
  std::uint64_t ready_number = 0;  ///< counts those of the communicator, in the order of recording
};

/// Whether this rank gives anything to the others, which must wait for its stream.
bool reads_input(const DeviceCall& call);

/// What a stage came to when it was looked at.
enum class StageState : std::uint8_t {
  kWaiting,
  kOver,
  kFallback,  ///< nothing was done: the call must be staged
};

}  // namespace unisono
