// For calls that are made of several collectives.
#pragma once

#include "comm/init.h"
#include "unisono/communicator.h"

namespace unisono {

/// The communicator of a call, whatever a callback does to the caller's own while the call waits:
/// one that is closed meanwhile throws kClosed, and neither its rank nor its size changes. Its
/// destructor closes nothing. Thread rule: as Communicator.
class KeptCommunicator final : public Communicator {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): what a call is given becomes one at its door.
  KeptCommunicator(const Communicator& communicator)
      : Communicator(CommunicatorAccess::share(communicator)) {}
  ~KeptCommunicator() { state_.reset(); }
  KeptCommunicator(const KeptCommunicator&) = delete;
  KeptCommunicator& operator=(const KeptCommunicator&) = delete;
};

}  // namespace unisono
