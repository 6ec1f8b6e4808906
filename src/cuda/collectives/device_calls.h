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
  /// For a call that began as part of a group. It has recorded how far the caller's stream is, and
  /// the stream does not wait for it yet: from here on it does.
  virtual Status close_gate(StartedCall& call) = 0;
  /// Whether an earlier call still waits to tell the peers about itself: a fused call for its
  /// exchange of metadata, a staged call for its input to leave the device. Peers match calls by
  /// their order, so a call `like` it must start later. Collectives have one order, sends and
  /// receives another.
  virtual bool has_unlaunched(Collective like) const = 0;

  /// Members that replays of captured calls wait for right now, each once.
  virtual void replays_wait_for(std::vector<Rank>* ranks) const = 0;
  /// From now on replays of captured calls wait for nobody and move nothing. `failed`: because the
  /// communicator has failed; otherwise because it is closed.
  virtual void end_replays(bool failed) = 0;
  /// kRankFailed with a member that has told that it failed: its streams were let go and may have
  /// told that they are done, though they have moved nothing. Ok: no member has. Any thread.
  virtual Status members_failure() const = 0;
};

}  // namespace unisono
