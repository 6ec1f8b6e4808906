// Calls of one communicator on device buffers, as the communicator sees them, in builds with CUDA
// and without.
//
// Thread rule: the engine's lock, but for concerns() and has_unlaunched(): the caller's thread.
#pragma once

#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/backend_host.h"
#include "unisono/communicator.h"

namespace unisono {

namespace device {
class RankDevice;
}

class DeviceCalls : public Backend {
 public:
  /// Null where the rank can have no device memory: without a `device`. Both outlive it.
  static std::unique_ptr<DeviceCalls> make(BackendHost& communicator, device::RankDevice* device);

  /// What the call does on the host is counted part by part.
  void end(StartedCall&, bool) override {}
  /// A stream was given, or one of the buffers is device memory. Opens the rank's device, so that
  /// the driver has been waited for before the lock is taken.
  virtual bool concerns(const Call& call) const = 0;
  /// A call that began as part of a group has only taken note of where its stream stands: from
  /// here on the stream waits for its result.
  virtual Status close_gate(StartedCall& call) = 0;
  /// A call of before has not yet told the peers about itself: it waits for its exchange of
  /// metadata, or for its input to leave the device. Calls like this one must come after it:
  /// collectives after collectives, sends and receives after sends and receives.
  virtual bool has_unlaunched(Collective like) const = 0;

  /// Members that replays of captured calls wait for right now, each once.
  virtual void replays_wait_for(std::vector<Rank>* ranks) const = 0;
  /// Replays wait for nobody and move nothing, from now on and for good. `failed`: the communicator
  /// has, and was not just closed.
  virtual void end_replays(bool failed) = 0;
  /// Names a member that has failed and whose streams, let go, may have told that they are done and
  /// were not; ok: none is known. Any thread.
  virtual Status members_failure() const = 0;
};

}  // namespace unisono
