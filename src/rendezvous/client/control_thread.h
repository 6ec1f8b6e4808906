// The one thread of a process that serves the control connections of all its jobs, so that what an
// arbiter says is heard while the program computes. It exists while there is a connection to serve,
// sleeps in poll() and runs no handler of a signal.
//
// Thread rule: any thread, but not from within a function of ControlClient. A forked child has
// neither the thread nor the clients of its parent, and may have its own.
#pragma once

#include <poll.h>

#include <span>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace unisono::rendezvous {

/// What the control thread serves. It calls these functions, one at a time; they never block.
class ControlClient {
 public:
  virtual ~ControlClient() = default;
  /// Appends the descriptors to wait for.
  virtual void list_awaited(std::vector<pollfd>* awaited) = 0;
  /// When serve() is to be called though nothing has happened to a descriptor.
  virtual TimePoint next_due() = 0;
  /// `happened`: what list_awaited() has appended, with the outcome.
  virtual void serve(std::span<const pollfd> happened, TimePoint now) = 0;
};

/// kOutOfResources where no thread can be made.
Status add_to_control_thread(ControlClient* client);
/// Returns once `client` is served no more. Idempotent.
void remove_from_control_thread(const ControlClient* client);
/// Has all clients asked again what they wait for.
void wake_control_thread();

}  // namespace unisono::rendezvous
