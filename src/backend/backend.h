// The backends that run calls: plans over transports, shared memory, messages, devices. Each call
// is checked once and gets one backend; what that starts goes on by itself.
#pragma once

#include <cstdint>

#include "backend/call_check.h"
#include "backend/started_call.h"
#include "base/result.h"
#include "engine/operation.h"

namespace unisono {

/// What became of a blocking call that was tried without a request.
enum class Tried : std::uint8_t {
  kNotBegun,  ///< it has to be started
  kOver,      ///< and went well
  kRefused,   ///< the error concerns the call alone
  kFailed,    ///< the error concerns the communicator
  kGoesOn,    ///< it has begun, and needs a request now
};

/// Thread rule: the engine's lock.
class Backend {
 public:
  virtual ~Backend() = default;
  /// Starts a checked call: `call` has what was asked for, its choice, reduction and record. What
  /// is returned is the engine's to advance or to fail, and says for whom it waits; it belongs to
  /// `call` and reads it until it has ended. kInvalidArgument and kUnsupported concern the call
  /// alone, any other error the communicator.
  virtual Result<Operation*> start(StartedCall& call, const CallShape& shape) = 0;
  /// Ends a call whose operation is over: counts what it moved if it `succeeded`, and gives back
  /// what it used.
  virtual void end(StartedCall& call, bool succeeded) = 0;
};

}  // namespace unisono
