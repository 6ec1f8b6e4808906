// Where the caller's stream waits for the result of a call whose work goes on elsewhere, until the
// host opens it. There is one only where nothing that opens it can be held up by it: not in the
// default stream, and not where the process has other ranks, whose streams may share a hardware
// queue with this one. There, on devices that cannot wait for words of memory, where more streams
// would wait than leave hardware queues for others, behind many gates that are still closed, while
// the first hierarchical calls connect, and with UNISONO_CUDA_GATES=off the caller itself waits. A
// step of a hierarchical call has none: its caller's gate is enough.
//
// Thread rule: the engine's lock.
#pragma once

#include "cuda/device/device.h"

namespace unisono {

struct DeviceCall;

class CallGate {
 public:
  /// Takes a gate if the call may have one and has none yet. Errors: kOutOfResources.
  Status make(const DeviceCall& call);
  /// The stream waits from here on, and the caller goes on.
  Status close(const DeviceCall& call);
  /// From the host.
  void open() const;
  void give_back(device::Device& device);

 private:
  device::Device::Gate gate_;
  CUstream stream_ = nullptr;  // that waits for it
  bool exists_ = false;
  bool closed_ = false;
};

}  // namespace unisono
