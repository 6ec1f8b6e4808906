// Where the caller's stream waits for the result of a call whose work goes on elsewhere. It has one
// unless it is the default stream, where a gate would hold up other ranks of the process, or the
// device cannot wait for words of memory: the caller itself waits then.
//
// Thread rule: the engine's lock.
#pragma once

#include "device/device.h"

namespace unisono {

struct DeviceCall;

class CallGate {
 public:
  /// Of one call; keeps what it has. Errors: kOutOfResources.
  Status make(const DeviceCall& call);
  /// The stream waits from here on, and the caller goes on.
  Status close(const DeviceCall& call);
  /// From the host.
  void open() const;
  /// For a stream that opens it; null where there is none.
  const device::Device::Gate* get() const { return exists_ ? &gate_ : nullptr; }
  void give_back(device::Device& device);

 private:
  device::Device::Gate gate_;
  bool exists_ = false;
  bool closed_ = false;
};

}  // namespace unisono
