// Calls that are made together, on one or several communicators of one thread: all begin, then
// their streams may wait for what they come to, then all are waited for.
//
// Thread rule: as the communicators'.
#pragma once

#include <span>

#include "unisono/communicator.h"

namespace unisono::detail {

class CommunicatorState;

/// Of calls that are ended one after the other: the first that failed.
struct FirstFailure {
  Status status;
  Collective collective = Collective::kBarrier;
  const CommunicatorState* communicator = nullptr;

  void note(const Status& outcome, Collective of, const CommunicatorState* on) {
    if (!status.ok() || outcome.ok()) return;
    *this = {outcome, of, on};
  }
};

struct GroupedCall {
  CommunicatorState* communicator = nullptr;
  const Call* call = nullptr;
};

/// Calls of one communicator begin in the order in which they are given, and none after one that
/// could not. `received`: what the last receive got whose result is here.
FirstFailure run_together(std::span<const GroupedCall> calls, Received* received);

}  // namespace unisono::detail
