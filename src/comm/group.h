// Makes calls, one or several at once, on communicators of one thread: first all begin, then their
// streams are allowed to wait, then the blocking ones are waited for.
//
// Thread rule: as the communicators'.
#pragma once

#include <memory>
#include <span>

#include "backend/host_backends.h"
#include "unisono/communicator.h"

namespace unisono::detail {

class CommunicatorState;

/// The first failure of calls that are ended one after the other.
struct FirstFailure {
  Status status;
  Collective collective = Collective::kBarrier;
  /// Kept, because a callback may have dropped it meanwhile.
  std::shared_ptr<const CommunicatorState> communicator;

  void note(const Status& outcome, Collective of, const CommunicatorState& on);
  /// Throws it as Error, if there is one.
  void raise() const;
};

/// One of the calls, and how far it is.
struct GroupedCall {
  CommunicatorState* communicator = nullptr;  ///< the caller's, unless it is `kept`
  const Call* call = nullptr;
  /// On device memory, as CommunicatorDevices::concerns() has found before any of them began.
  bool on_device = false;
  bool is_asynchronous = false;              ///< a Request waits for it, and not who begins it
  bool may_linger = false;                   ///< where it begins: no other call waits for that
  HostBackends::Checked* checked = nullptr;  ///< what try_run() may have found of it, or null
  bool has_begun = false;                    ///< or was refused, or comes after one that was
  bool only_sent = false;                    ///< it is over and has heard of no peer
  RequestState* request = nullptr;  ///< null before it has begun; blocking: where it was over then
  /// The communicator, from before the first callback that may run on this thread, and drop it.
  std::shared_ptr<CommunicatorState> kept;
};

/// Begins asynchronous calls. Where none fails, their requests are then `held` for the caller.
FirstFailure begin_together(std::span<GroupedCall> calls);
/// Calls of one communicator begin in the order in which they are given, but where all are
/// messages, the sends first; after one that could not begin, none begins. `received`: what the
/// last receive without a stream got.
FirstFailure run_together(std::span<GroupedCall> calls, Received* received);
/// The same for calls of one communicator.
FirstFailure run_together(CommunicatorState& communicator, std::span<const Call> calls,
                          Received* received);

}  // namespace unisono::detail
